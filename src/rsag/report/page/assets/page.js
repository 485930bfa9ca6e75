"use strict";
// What every page has: its data, its words, the button for sources, and copying. Nothing here writes HTML from strings.

const DATA = JSON.parse(document.getElementById("data").textContent);

function word(key, values = {}) {
  return DATA.words[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

function bytes(count) {
  const units = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  const [unit, size] = units.find(([, one]) => Math.abs(count) >= one) ?? ["B", 1];
  return `${Number((count / size).toPrecision(4))} ${unit}`;
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

document.getElementById("sources")?.addEventListener("click", (event) => {
  const shown = document.documentElement.classList.toggle("sources");
  event.currentTarget.setAttribute("aria-pressed", String(shown));
});

// On paper nothing can be opened. The cycles stay closed: thousands of lines, and their plot is there.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open], [data-cycles])")];
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy);
    const range = document.createRange();
    range.selectNodeContents(text);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    // A page from disk has no clipboard of its own in some browsers; the old command then does, or the reader.
    let copied = await navigator.clipboard?.writeText(text.textContent).then(() => true, () => false);
    if (!copied) copied = document.execCommand("copy");
    button.textContent = word(copied ? "copied" : "copy_failed");
  });
}
