// What a unit asks people: the answers that it allows are buttons; where it allows any, there is a line to write.
import { html, useState } from "../../lib.js";
import { Action } from "../../parts/action.js";
import { Panel } from "../../parts/panel.js";
import { Ago } from "../../parts/time.js";
import { useMay } from "../../rights.js";
import { Long, cut, plain } from "../plain.js";

const ANSWER_MAX = 200; // characters, as the daemon takes them
const LABEL_MAX = 60; // characters of a button

export function Questions({ unit, questions }) {
  return html`<${Panel} title=${`It asks (${questions.length})`} kind="asks" live>
    ${questions.map((one) => html`<${Asked} key=${one.id} unit=${unit} question=${one} />`)}
  <//>`;
}

function Asked({ unit, question: { id, text, choices, at, until, default: taken } }) {
  const [written, setWritten] = useState("");
  const allowed = useMay("answer");
  const args = (answer) => ({ unit, id, answer });
  return html`<div class="asked">
    <p><b><${Long} text=${text} /></b></p>
    <p class="dim">
      asked <${Ago} at=${at} />${until
        ? html`; if nobody answers, it ${taken === null ? "gives up" : `takes “${plain(taken)}”`} <${Ago} at=${until} />`
        : null}
    </p>
    <div class="buttons" role="group" aria-label="Answers">
      ${choices.map(
        (choice, place) => html`<${Action}
          key=${choice}
          verb="answer"
          args=${args(choice)}
          label=${cut(plain(choice), LABEL_MAX)}
          primary=${place === 0}
        />`,
      )}
      ${choices.length === 0 && allowed
        ? html`<input
              aria-label="Your answer"
              maxlength=${ANSWER_MAX}
              value=${written}
              onInput=${(event) => setWritten(event.target.value)}
            />
            <${Action} verb="answer" args=${args(written)} label="Answer" primary=${true} />`
        : null}
    </div>
  </div>`;
}
