// A value that tells when it changes. Components read it by `useSignal`; nothing else is needed of a state library.
import { useEffect, useState } from "./lib.js";

export function signal(value) {
  const listeners = new Set();
  return {
    get value() {
      return value;
    },
    set value(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const tell of [...listeners]) tell(next);
    },
    /** Have `tell` called at each change; what is returned ends that. */
    subscribe(tell) {
      listeners.add(tell);
      return () => listeners.delete(tell);
    },
    get idle() {
      return listeners.size === 0;
    },
  };
}

/** The value now; the component is drawn again when it changes. */
export function useSignal(source) {
  const [, draw] = useState(0);
  const drawn = source.value;
  useEffect(() => {
    const end = source.subscribe(() => draw((n) => n + 1));
    if (!Object.is(drawn, source.value)) draw((n) => n + 1); // it changed before anybody listened
    return end;
  }, [source]);
  return drawn;
}
