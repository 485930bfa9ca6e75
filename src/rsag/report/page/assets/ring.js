"use strict";
// The ring schedule as `rsag ring --json` prints it, one step at a time: a picture, and the same in words.

const SVG = "http://www.w3.org/2000/svg";
const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const MOVE_MS = 900;
const REST_MS = 700;

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

class Stepper {
  constructor(root) {
    this.picture = document.getElementById("ring-picture");
    this.slider = document.getElementById("position");
    this.select = document.getElementById("schedule");
    this.playing = 0;
    for (const button of root.querySelectorAll("[data-step]")) button.addEventListener("click", () => this[button.dataset.step]());
    this.select.addEventListener("change", () => this.load());
    this.slider.addEventListener("input", () => { this.stop(); this.show(Number(this.slider.value)); });
    this.button = root.querySelector('[data-step="play"]');
    this.load();
  }

  load() {
    this.stop();
    const { document: schedule, source } = DATA.schedules[this.select.value];
    this.schedule = schedule;
    this.slider.max = schedule.steps.length;
    document.getElementById("ring-source").textContent = word("source", { source });
    this.layOut();
    this.show(0);
  }

  first() { this.stop(); this.show(0); }
  back() { this.stop(); this.show(Math.max(0, this.at - 1)); }
  next() { this.stop(); this.go(); }
  play() {
    if (this.playing) return this.stop();
    if (this.at === this.schedule.steps.length) this.show(0);
    this.button.textContent = word("pause");
    const on = () => {
      if (this.at === this.schedule.steps.length) return this.stop();
      this.go();
      this.playing = setTimeout(on, MOVE_MS + REST_MS);
    };
    on();
  }
  stop() { clearTimeout(this.playing); this.playing = 0; this.button.textContent = word("play"); }

  go() {
    if (this.at === this.schedule.steps.length) return;
    const [before, after] = [this.at, this.at + 1];
    if (STILL.matches) return this.show(after);
    // The boxes stay as they were until the chunks have arrived, unless somebody has gone elsewhere by then.
    this.say(after);
    this.paint(before);
    const flights = this.schedule.steps[before].ranks.map((row) => this.fly(row, before));
    Promise.all(flights).then(() => { if (this.at === after) this.paint(after); }, () => {});
  }

  // Ranks clockwise, rank 0 at the top; each a box with one row of stripes for each chunk.
  layOut() {
    const n = this.schedule.world_size;
    this.stripe = Math.max(5, Math.min(14, 84 / n));
    this.row = Math.max(10, Math.min(16, 112 / n));
    this.box = { width: n * this.stripe + 30, height: n * this.row + 26 };
    const radius = Math.max(120, (n * Math.hypot(this.box.width, this.box.height) * 0.98) / (2 * Math.PI));
    const wide = 2 * radius + this.box.width + 24;
    const high = 2 * radius + this.box.height + 24;
    this.picture.setAttribute("viewBox", `${-wide / 2} ${-high / 2} ${wide} ${high}`);
    this.centres = Array.from({ length: n }, (_, rank) => rank).map((rank) => {
      const angle = (2 * Math.PI * rank) / n - Math.PI / 2;
      return [radius * Math.cos(angle), radius * Math.sin(angle)];
    });
  }

  holdings(at) {
    const rows = at === 0 ? this.schedule.initial : this.schedule.steps[at - 1].ranks;
    return rows.map((row) => row.holds);
  }

  show(at) {
    this.say(at);
    this.paint(at);
  }

  say(at) {
    this.at = at;
    this.slider.value = at;
    const steps = this.schedule.steps;
    const step = at === 0 ? null : steps[at - 1];
    const phase = step === null ? "" : ` · ${word(step.phase)}`;
    document.getElementById("phase").value = (at === 0 ? word("start") : word("step", { step: at, steps: steps.length })) + phase;
    this.slider.setAttribute("aria-valuetext", document.getElementById("phase").value);
    this.inWords(step, this.holdings(at));
  }

  paint(at) {
    const step = at === 0 ? null : this.schedule.steps[at - 1];
    this.picture.replaceChildren(
      ...this.schedule.steps[0].ranks.map((row) => this.arrow(row)),
      ...this.holdings(at).map((held, rank) => this.rank(rank, held, step?.ranks[rank].receives)),
    );
  }

  rank(rank, held, arrived) {
    const { width, height } = this.box;
    const [x, y] = this.centres[rank];
    const group = shape("g", { transform: `translate(${x - width / 2} ${y - height / 2})` });
    group.append(shape("rect", { class: "box", width, height, rx: 4 }), shape("text", { x: 8, y: 16 }, `${word("rank")} ${rank}`));
    this.schedule.chunks.forEach((_, chunk) => {
      const top = 22 + chunk * this.row;
      group.append(shape("text", { class: "soft", x: 8, y: top + this.row - 4, "font-size": Math.min(12, this.row - 1) }, chunk));
      group.append(...this.chunk(held[chunk] ?? [], 22, top));
      if (chunk === arrived) group.append(shape("rect", { class: "arrived", x: 21, y: top - 1, width: this.schedule.world_size * this.stripe + 2, height: this.row, rx: 2 }));
    });
    return group;
  }

  chunk(contributors, x, y) {
    const n = this.schedule.world_size;
    const cells = [shape("rect", { class: "slot", x, y, width: n * this.stripe, height: this.row - 2, rx: 1 })];
    for (const rank of contributors) {
      const hue = Math.round((360 * rank) / n + 205) % 360;
      cells.push(shape("rect", { class: "lit", x: x + rank * this.stripe, y, width: this.stripe, height: this.row - 2, fill: `hsl(${hue} 52% 52%)` }));
    }
    return cells;
  }

  arrow(row) {
    const [from, to] = [this.centres[row.rank], this.centres[row.to]];
    const turn = (Math.atan2(to[1] - from[1], to[0] - from[0]) * 180) / Math.PI;
    const arrow = shape("g", { class: "arrow" });
    arrow.append(
      shape("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }),
      shape("path", { d: "M-5,-5 L4,0 L-5,5", transform: `translate(${(from[0] + to[0]) / 2} ${(from[1] + to[1]) / 2}) rotate(${turn})` }),
    );
    return arrow;
  }

  // The chunk on its way: what the sender held before the step, from its box to the next one's.
  fly(row, before) {
    const group = shape("g", {});
    group.append(...this.chunk(this.holdings(before)[row.rank][row.sends] ?? [], -(this.schedule.world_size * this.stripe) / 2, -this.row / 2));
    this.picture.append(group);
    const [from, to] = [this.centres[row.rank], this.centres[row.to]];
    const at = ([x, y]) => `translate(${x}px, ${y}px)`;
    return group.animate([{ transform: at(from) }, { transform: at(to) }], { duration: MOVE_MS, easing: "ease-in-out" }).finished;
  }

  inWords(step, holds) {
    const said = (held) => Object.entries(held).map(([chunk, ranks]) => `${chunk}: ${ranks.join(",")}`).join("; ");
    document.getElementById("ring-words").replaceChildren(...holds.map((held, rank) => {
      const row = step?.ranks[rank];
      const cells = row
        ? [word("to", { chunk: row.sends, rank: row.to }), word("from", { chunk: row.receives, rank: row.from }), row.word]
        : ["", "", this.schedule.opening[rank] ? word("opens", { word: this.schedule.opening[rank] }) : ""];
      const line = element("tr");
      line.append(element("th", rank, { scope: "row" }), ...[...cells, said(held)].map((text) => element("td", text)));
      return line;
    }));
  }
}

const stepper = document.getElementById("stepper");
if (stepper) new Stepper(stepper);
