"use strict";
// Every plot of the page, drawn by Observable Plot when it comes into view, and again when its width changes.

const NARROW = 560;
const ARMS = ["var(--arm-1)", "var(--arm-2)", "var(--arm-3)", "var(--arm-4)", "var(--arm-5)"];
const ROLES = ["var(--role-1)", "var(--role-2)", "var(--role-3)", "var(--role-4)", "var(--role-5)"];

const unique = (list) => [...new Set(list)];

// A composition has one colour in every plot of the page; what else sets arms apart is fill against outline, and the name.
const COMPOSITIONS = unique([...(DATA.ratios ?? []), ...(DATA.wire ?? [])].map((one) => one.composition)).filter((one) => one !== DATA.direct);
const colourOf = (composition) => (composition === DATA.direct ? "var(--direct)" : ARMS[COMPOSITIONS.indexOf(composition) % ARMS.length]);
const fixed = (value, digits = 3) => (value === null ? word("no_ratio") : value.toFixed(digits));
const interval = (one) => (one.low === null ? "" : ` [${fixed(one.low)}, ${fixed(one.high)}]`);

function common(width, options) {
  const svg = Plot.plot({
    width,
    marginLeft: 52,
    marginBottom: 40,
    style: { background: "transparent", fontSize: "12px", fontFamily: "inherit" },
    ...options,
  });
  // Its box has a role and a label, and the table says the rest: Plot's own labels of groups would only be in the way.
  svg.setAttribute("aria-hidden", "true");
  return svg;
}

function payloadAxis(sizes, label = word("payload")) {
  const all = unique(sizes).sort((a, b) => a - b);
  const every = Math.ceil(all.length / 8);
  const ticks = all.filter((_, index) => index % every === 0);
  return { type: "log", base: 2, domain: [all[0] / 1.7, all.at(-1) * 1.7], ticks, tickFormat: bytes, label };
}

// Arms of one size beside each other, so that none hides another.
function apart(points, names) {
  const middle = (names.length - 1) / 2;
  return points.map((one, id) => ({ ...one, id, x: one.bytes * 1.11 ** (names.indexOf(one.name) - middle) }));
}

function tip(points, x, y, title) {
  return Plot.tip(points, Plot.pointer({ x, y, title, maxRadius: 30, fontSize: 12 }));
}

// Accepted, refused and without an answer: three shapes. A refused ratio has no point of its own, only the ends of its interval.
function ratioMarks(points, colour, floor) {
  const told = points.filter((one) => one.low !== null && one.standing !== "invalid");
  const refused = told.filter((one) => one.standing === "refused");
  const ends = refused.flatMap((one) => [{ ...one, end: one.low }, { ...one, end: one.high }]);
  const invalid = points.filter((one) => one.standing === "invalid" || one.low === null);
  return [
    Plot.ruleX(told.filter((one) => one.standing === "accepted"), { x: "x", y1: "low", y2: "high", stroke: colour, strokeWidth: 2 }),
    Plot.ruleX(refused, { x: "x", y1: "low", y2: "high", stroke: colour, strokeDasharray: "3,3" }),
    Plot.dot(ends, { x: "x", y: "end", symbol: "diamond", r: 3.5, stroke: colour, fill: "var(--paper)" }),
    Plot.dot(told.filter((one) => one.standing === "accepted"), { x: "x", y: "ratio", r: 4.5, fill: colour }),
    // On the frame and off the scale: there is no number to place it by.
    Plot.dot(invalid, { x: "x", frameAnchor: "bottom", dy: 9, symbol: "times", r: 5, stroke: colour, strokeWidth: 2 }),
    tip(points.map((one) => ({ ...one, at: one.ratio ?? one.high ?? floor })), "x", "at", (one) =>
      `${one.run ? `${one.run}: ` : ""}${one.arm}\n${one.case}\n${one.ratio === null ? "" : `${fixed(one.ratio)} `}${one.outcome}${one.standing === "invalid" ? "" : interval(one)}`),
  ];
}

// One plot for all that is set against one direct arm on one clock, with the band of that arm against itself.
function ratioPlots(box, width, points, names, colours, band) {
  const colour = (one) => colours[names.indexOf(one.name) % colours.length];
  for (const kind of unique(points.map((one) => one.kind))) {
    const of = (list) => list.filter((one) => one.kind === kind);
    const shown = apart(of(points), names);
    const reach = [1, ...[...shown, ...of(band)].flatMap((one) => [one.low, one.high, one.ratio])].filter((one) => one !== null);
    box.append(element("p", kind, { class: "aside" }), common(width, {
      height: width < NARROW ? 260 : 320,
      x: payloadAxis(points.map((one) => one.bytes)),
      y: { domain: d3.min(reach) < d3.max(reach) ? d3.extent(reach) : [0.9, 1.1], nice: true, grid: true, ticks: 6, label: `↑ ${word("ratio")}` },
      marks: [
        Plot.rect(of(band), { x1: (one) => one.bytes / 1.45, x2: (one) => one.bytes * 1.45, y1: "low", y2: "high", fill: "var(--band)" }),
        Plot.ruleY([1], { stroke: "currentColor" }),
        ...ratioMarks(shown, colour, d3.min(reach)),
      ],
    }));
  }
  legend(box.dataset.plot, names, colours);
}

// One entry for each name, in the place that the page keeps for this kind of plot.
function legend(kind, names, colours, hollow = []) {
  const place = document.querySelector(`[data-legend="${kind}"]`);
  place?.replaceChildren(...names.map((name, index) => {
    const item = element("span", name, { class: "item" });
    const key = element("span", undefined, { class: hollow[index] ? "key hollow" : "key" });
    key.style.color = colours[index % colours.length];
    item.prepend(key);
    return item;
  }));
}

function ratios(box, width) {
  const points = DATA.ratios.filter((one) => one.role === "candidate").map((one) => ({ ...one, name: one.composition }));
  const band = DATA.ratios.filter((one) => one.role === "control" && one.low !== null);
  const names = unique(points.map((one) => one.name));
  ratioPlots(box, width, points, names, names.map(colourOf), band);
}

function compared(box, width) {
  const points = DATA.compared.filter((one) => one.role === "candidate").map((one) => ({ ...one, name: `${one.composition}, ${one.run}` }));
  ratioPlots(box, width, points, unique(points.map((one) => one.name)), ARMS, []);
}

// ------------------------------------------------------------------------------------------------- one case's times

function timings(of) {
  const arms = of.arms.map((_, arm) => arm).filter((arm) => of.roles[arm] !== "null");
  const medians = arms.map((arm) => d3.median(of.ns[arm]) / 1e3);
  const symbol = (place, arm, direct) => (arm === direct ? "square" : direct !== null && place[arm] < place[direct] ? "triangle" : "circle");
  return arms.flatMap((arm, row) => of.ns[arm].map((ns, cycle) => ({
    arm: of.arms[arm],
    colour: of.roles[arm] === "control" ? "var(--control)" : colourOf(of.compositions[arm]),
    hollow: of.kinds[arm] !== of.kinds[0],
    band: of.bands_ns[arm],
    cycle,
    us: ns / 1e3,
    place: of.place[cycle][arm],
    median: medians[row],
    symbol: ns / 1e3 > 3 * medians[row] ? "asterisk" : symbol(of.place[cycle], arm, of.references[arm]),
  }))).filter((one) => one.us > 0);  // a time that is no time makes the case invalid; a log axis has no place for it
}

// One for each arm that has a direct one: where that direct one lies when it is compared with itself.
function bands(points) {
  const firsts = unique(points.map((one) => one.arm)).map((name) => points.find((one) => one.arm === name));
  return firsts.filter((one) => one.band !== null).map((one) => ({ arm: one.arm, low: one.band[0] / 1e3, high: one.band[1] / 1e3 }));
}

function duration(us) {
  const [unit, size] = us >= 1e6 ? ["s", 1e6] : us >= 1e3 ? ["ms", 1e3] : ["µs", 1];
  return `${Number((us / size).toPrecision(3))} ${unit}`;
}

// A log axis as close as the points allow, with few ticks: at 1, 2 and 5, or where that is too many at powers of ten.
function timesAxis(points, most) {
  const [low, high] = d3.extent(points, (one) => one.us);
  const domain = [low * 0.88, high * 1.14];
  const every = [[1, 2, 5], [1, 3], [1]].map((steps) => d3.range(-3, 9).flatMap((power) => steps.map((step) => step * 10 ** power)));
  const within = every.map((list) => list.filter((us) => us >= domain[0] && us <= domain[1]));
  const ticks = within.find((list) => list.length <= most && list.length) ?? [d3.median(points, (one) => one.us)];
  return { type: "log", domain, ticks, tickFormat: duration, grid: true, label: null };
}

function spread(box, width) {
  const of = DATA.cases[box.dataset.index];
  const points = timings(of);
  const names = unique(points.map((one) => one.arm));
  const narrow = width < NARROW;
  box.append(common(width, {
    height: 50 + (narrow ? 46 : 30) * names.length,
    marginLeft: narrow ? 8 : 30 + 7 * d3.max(names, (name) => name.length),
    x: timesAxis(points, narrow ? 4 : 9),
    marginBottom: 26,
    y: { domain: names, label: null, axis: narrow ? null : "left", padding: narrow ? 0.5 : 0.1 },
    marks: [
      Plot.barX(bands(points), { x1: "low", x2: "high", y: "arm", fill: "var(--band)", clip: true }),
      ...[false, true].map((hollow) => points.filter((one) => one.hollow === hollow)).map((own, index) =>
        Plot.boxX(own, { x: "us", y: "arm", fill: "colour", fillOpacity: index ? 0.08 : 0.22, stroke: "colour", r: 2 })),
      // Beside the boxes there is no room for whole names on a phone: there each stands above its own.
      ...(narrow ? [Plot.text(names, { y: (name) => name, text: (name) => name, frameAnchor: "left", dy: -18 })] : []),
    ],
    color: { type: "identity" },
  }));
}

function cycles(box, width) {
  const of = DATA.cases[box.dataset.index];
  const points = timings(of);
  const names = unique(points.map((one) => one.arm));
  const rounds = d3.range(of.cycles_per_round, of.place.length, of.cycles_per_round);
  box.append(common(width, {
    height: 50 + 110 * names.length,
    marginRight: 8,
    marginTop: 22,
    x: { domain: [-1, of.place.length], label: `${word("cycle")} →`, ticks: width < NARROW ? 4 : 8 },
    y: timesAxis(points, 4),
    fy: { domain: names, axis: null, padding: 0.28 },
    symbol: { type: "identity" },
    color: { type: "identity" },
    marks: [
      Plot.rect(bands(points), { fy: "arm", y1: "low", y2: "high", fill: "var(--band)", clip: true }),
      Plot.ruleX(rounds, { x: (one) => one - 0.5, stroke: "var(--line)" }),
      Plot.text(names, { fy: (name) => name, text: (name) => name, frameAnchor: "top-left", dy: -13, fontWeight: 500 }),
      Plot.ruleY(names, { fy: (name) => name, y: (name) => points.find((one) => one.arm === name).median, stroke: (name) => points.find((one) => one.arm === name).colour }),
      Plot.dot(points, { x: "cycle", y: "us", fy: "arm", symbol: "symbol", fill: (one) => (one.hollow ? "none" : one.colour), stroke: (one) => (one.hollow || one.symbol === "asterisk" ? one.colour : "none"), strokeWidth: 1, r: (one) => (one.symbol === "asterisk" ? 5 : 2.4) }),
      Plot.tip(points, Plot.pointer({ x: "cycle", y: "us", fy: "arm", title: (one) =>
        `${one.arm}\n${one.us.toLocaleString("en")} ${word("microseconds")}\n${word("cycle")} ${one.cycle}, ${word("round")} ${Math.floor(one.cycle / of.cycles_per_round)}\n${word("place", { place: one.place + 1, n: of.arms.length })}` })),
    ],
  }));
}

function cycleTable(details) {
  const of = DATA.cases[details.dataset.cycles];
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const name of [word("round"), word("cycle"), ...of.arms]) head.append(element("th", name, { scope: "col" }));
  const body = table.createTBody();
  of.place.forEach((_, cycle) => {
    const row = body.insertRow();
    row.append(element("td", Math.floor(cycle / of.cycles_per_round)), element("td", cycle));
    of.arms.forEach((_, arm) => row.append(element("td", (of.ns[arm][cycle] / 1e3).toFixed(1), { class: "num" })));
  });
  const scroll = element("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": details.querySelector("summary").textContent });
  scroll.append(table);
  details.append(scroll);
}

// ------------------------------------------------------------------------------------------------- memory and wire

function memory(box, width) {
  const of = DATA.memory[box.dataset.index];
  const roles = unique(DATA.memory.flatMap((one) => one.roles));
  const colour = (role) => ROLES[roles.indexOf(role) % ROLES.length];
  const all = DATA.memory.flatMap((one) => [...one.predicted, ...one.measured]);
  const most = d3.max(all, (one) => one.live_bytes);
  const end = of.predicted.length;
  const held = (moments) => (moments.length ? [...moments, { ...moments.at(-1), at: end }] : []);
  const stacked = held(of.predicted).flatMap((one) => of.roles.map((role) => ({ at: one.at, role, bytes: one.by_role[role] ?? 0 })));
  const peak = (moments) => (moments.length ? [d3.greatest(moments, (one) => one.live_bytes)] : []);
  box.append(common(width, {
    height: 150,
    marginBottom: 22,
    marginTop: 16,
    marginLeft: 58,
    x: { domain: [0, end], ticks: [], label: word("instructions") },
    y: { domain: [0, most], ticks: [0, most / 2, most], tickFormat: bytes, label: null },
    marks: [
      Plot.areaY(stacked, Plot.stackY({ order: of.roles }, { x: "at", y: "bytes", z: "role", fill: (one) => colour(one.role), curve: "step-after" })),
      Plot.lineY(held(of.measured), { x: "at", y: "live_bytes", curve: "step-after", stroke: "currentColor", strokeWidth: 2 }),
      Plot.dot(peak(of.predicted), { x: "at", y: "live_bytes", symbol: "triangle", r: 5, dy: -5, stroke: "currentColor", fill: "var(--paper)" }),
      Plot.dot(peak(of.measured), { x: "at", y: "live_bytes", symbol: "triangle", r: 5, dy: -5, fill: "currentColor" }),
      Plot.ruleY([0], { stroke: "var(--line)" }),
      Plot.tip([...of.predicted, ...of.measured], Plot.pointerX({ x: "at", y: "live_bytes", title: (one) => `${one.what}\n${bytes(one.live_bytes)}\n${one.site}` })),
    ],
  }));
  legend("memory", roles, ROLES);
}

function wire(box, width) {
  const names = unique(DATA.wire.map((one) => one.name));
  const points = apart(DATA.wire, names);
  const colour = (one) => colourOf(one.composition);
  const symbols = { agrees: "circle", differs: "diamond", "cannot-tell": "times" };
  const told = points.filter((one) => one.high !== null);
  box.append(common(width, {
    height: 240,
    x: payloadAxis(points.map((one) => one.bytes)),
    y: { domain: [0, 1.06 * d3.max(points, (one) => Math.max(one.high ?? 0, one.predicted ?? 0))], grid: true, ticks: 5, label: `↑ ${word("wire")}` },
    symbol: { type: "identity" },
    color: { type: "identity" },
    marks: [
      Plot.ruleY(points.filter((one) => one.predicted !== null), { y: "predicted", x1: (one) => one.x / (width < NARROW ? 1.4 : 1.15), x2: (one) => one.x * (width < NARROW ? 1.4 : 1.15), stroke: "var(--soft)", strokeWidth: 3 }),
      Plot.ruleX(told, { x: "x", y1: "low", y2: "high", stroke: colour }),
      Plot.dot(told, { x: "x", y: "high", symbol: (one) => symbols[one.outcome], r: 4.5, fill: (one) => (one.name === one.composition ? colour(one) : "var(--paper)"), stroke: colour, strokeWidth: 1.5 }),
      tip(told, "x", "high", (one) => `${one.name}, M = ${one.payload}\n${fixed(one.high, 2)} M, ${one.outcome}`),
    ],
  }));
  const compositions = names.map((name) => DATA.wire.find((one) => one.name === name).composition);
  legend("wire", names, compositions.map(colourOf), names.map((name, index) => name !== compositions[index]));
}

// --------------------------------------------------------------------------------------------------------- drawing

const DRAW = { ratios, compared, spread, cycles, memory, wire };

function draw(box) {
  const width = Math.floor(box.clientWidth);
  if (!width || box.drawn === width) return;
  box.drawn = width;
  box.replaceChildren();
  DRAW[box.dataset.plot](box, width);
}

const boxes = [...document.querySelectorAll("[data-plot]")];
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
}, { rootMargin: "400px" });
boxes.forEach((box) => seen.observe(box));
addEventListener("resize", () => boxes.filter((box) => box.drawn).forEach(draw));
addEventListener("beforeprint", () => boxes.forEach(draw));  // after page.js has opened what is closed
for (const details of document.querySelectorAll("details[data-cycles]")) {
  details.addEventListener("toggle", () => cycleTable(details), { once: true });
}
