// Draws the page, and redraws it when the theme or the run changes.

const live = document.documentElement.dataset.live === "true";
let current = JSON.parse(document.getElementById("document").textContent);
const status = el("span", {role: "status", class: "soft"});

function render() {
  const view = current.schema === "redline.variability" ? renderVariability(current) : renderReport(current);
  document.title = view.title.slice(0, 120);
  const theme = el("button", {type: "button", onclick: () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    render();
  }}, isDark() ? "light" : "dark");
  theme.setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
  document.getElementById("top").replaceChildren(el("div", {class: "words"}, el("h1", {class: "long"}, view.title), view.words,
    el("nav", {"aria-label": "Sections"}, el("ul", {}, view.sections.map((part) => el("li", {}, el("a", {href: "#" + part.id}, part.querySelector("h2").textContent)))))),
    el("div", {class: "tools"}, live ? status : "", theme, el("button", {type: "button", onclick: () => print()}, "print")));
  document.getElementById("main").replaceChildren(...view.content.filter(Boolean));
  document.getElementById("foot").replaceChildren(view.note);
  paintCharts();
}

function print() { window.print(); }
addEventListener("beforeprint", () => { printing = true; document.documentElement.dataset.printed = document.documentElement.dataset.theme || ""; document.documentElement.dataset.theme = "light"; redrawCharts(); });
addEventListener("afterprint", () => {
  printing = false;
  const was = document.documentElement.dataset.printed;
  if (was) document.documentElement.dataset.theme = was; else delete document.documentElement.dataset.theme;
  redrawCharts();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (!document.documentElement.dataset.theme) render(); });

document.body.append(spoken);
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
render();

// Redraws only what changed. Polls the server every two seconds, and less often if it does not answer.
if (live) {
  let wait = 2000, seen = "";
  const ask = async () => {
    try {
      const answer = await fetch("data.json", {cache: "no-store"});
      if (!answer.ok) throw new Error(String(answer.status));
      const text = await answer.text(), next = JSON.parse(text), {generated, ...rest} = next, content = JSON.stringify(rest);
      if (content !== seen) {
        current = next;
        render();
        seen = content;
      }
      const running = current.runs.some((run) => run.state === "unfinished");
      status.textContent = running ? `live, ${generated}` : "the run has ended";
      wait = 2000;
    } catch (error) {
      status.textContent = "the server does not answer";
      wait = Math.min(30000, wait * 2);
    }
    setTimeout(ask, wait);
  };
  ask();
}
