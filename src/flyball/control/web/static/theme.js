// Dark or light, before anything is painted: the choice that was made here before, else what the system prefers.
// A classic script, because modules run after the first paint.
(() => {
  const KEY = "flyball.theme";
  const CHOICES = ["system", "dark", "light"];
  const kept = () => {
    try {
      const choice = localStorage.getItem(KEY);
      return CHOICES.includes(choice) ? choice : "system";
    } catch {
      return "system"; // a browser that keeps nothing
    }
  };
  const show = (choice) => {
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
  };
  window.flyballTheme = {
    choices: CHOICES,
    kept,
    choose(choice) {
      show(choice);
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        // it holds until the page is left
      }
      window.dispatchEvent(new Event("flyball-theme"));
    },
  };
  show(kept());
})();
