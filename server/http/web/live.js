"use strict";
// The live page: asks the server for its counters, draws what they say, and draws the lesson's chart beside them.
const at = (id) => document.getElementById(id);
const kKept = 300;  // seconds of history
const charts = {};
// One figure per place, drawn anew with each answer.
const show = (id, spec) => {
  if (charts[id]) return charts[id].draw(spec);
  charts[id] = chartFigure(spec);
  at(id).replaceChildren(charts[id].figure);
};

// ---- What the server said. Everything here is bounded, however long the page stays open.

let last = null;  // the newest answer
const rates = new Map();  // model -> [[uptime, tokens per second]…]
const paces = new Map();  // model -> Map of position class -> {count, position, seconds}: sums
const calm = new Map();  // model -> whether the last second told of one position
const styles = new Map();  // model -> style; softmax is ink
let answered = null, paused = false, polls = 0;

const styleOf = (model) => {
  if (!styles.has(model.name)) {
    const taken = new Set(styles.values());
    styles.set(model.name,
        model.state_kind === "paged" && !taken.has(0) ? 0 : 1 + ([...taken].filter(Boolean).length % (kStyles - 1)));
  }
  return styles.get(model.name);
};
const mean = ({ positions, sessions }) => (sessions > 0 ? (positions?.sum ?? 0) / sessions : 0);
const furthest = (model) => (model.sessions > 0 ? model.positions?.max ?? 0 : 0);

// Seconds per token are told of a position only while the sessions open are those that generate, each in every step, and
// no prompt is read; nor in the second before, since a prompt may be counted before it has been read.
const notePace = (before, now) => {
  const steps = now.steps - before.steps, tokens = now.generated_tokens - before.generated_tokens;
  const isCalm = steps > 0 && now.prompt_tokens === before.prompt_tokens && tokens >= 0.9 * steps * now.sessions &&
      [before, now].every((one) => one.sessions > 0 && one.running === one.sessions);
  const wasCalm = calm.get(now.name);
  calm.set(now.name, isCalm);
  const position = (mean(before) + mean(now)) / 2;
  const seconds = (now.step_seconds_sum - before.step_seconds_sum) / tokens;
  if (!(isCalm && wasCalm && position >= 1 && seconds > 0)) return;
  if (!paces.has(now.name)) paces.set(now.name, new Map());
  const classes = paces.get(now.name), key = Math.round(4 * Math.log2(position));
  const sums = classes.get(key) ?? { count: 0, position: 0, seconds: 0 };
  classes.set(key, { count: sums.count + 1, position: sums.position + position, seconds: sums.seconds + seconds });
};
const pacePoints = (name) => [...(paces.get(name)?.values() ?? [])]
    .map(({ count, position, seconds }) => [position / count, seconds / count]).sort((a, b) => a[0] - b[0]);

const take = (answer) => {
  if (last && answer.uptime_seconds < last.uptime_seconds) {  // another process
    last = null;
    rates.clear();
    paces.clear();
    calm.clear();
  }
  const seconds = last ? answer.uptime_seconds - last.uptime_seconds : 0;
  for (const model of answer.models ?? []) {
    styleOf(model);
    const before = last?.models?.find((other) => other.name === model.name);
    if (!before || !(seconds > 0)) continue;
    if (!rates.has(model.name)) rates.set(model.name, []);
    const kept = rates.get(model.name);
    kept.push([answer.uptime_seconds, (model.generated_tokens - before.generated_tokens) / seconds]);
    while (kept.length && kept[0][0] < answer.uptime_seconds - kKept) kept.shift();
    notePace(before, model);
  }
  if (!last || seconds > 0) last = answer;
};

// ---- Drawing what is so now

const served = () => last?.models ?? [];
const sum = (key) => served().reduce((total, model) => total + (model[key] ?? 0), 0);
const tile = (figure, words) =>
    element("li", null, element("p", { class: "figure" }, figure), element("p", { class: "soft" }, words));
const drawTiles = () => {
  const now = [...rates.values()].reduce((total, kept) => total + (kept.at(-1)?.[1] ?? 0), 0);
  at("tiles").replaceChildren(tile(format.count(sum("sessions")), "sessions open"),
      tile(format.count(sum("running")), "requests running"), tile(format.count(sum("waiting")), "requests waiting"),
      tile(format.number(now), "tokens per second"),
      tile(format.bytes(last.process_resident_bytes), "resident memory"),
      tile(format.duration(last.uptime_seconds), "since its start"));
  at("facts").textContent =
      [last.device, last.version ? `weir-server ${last.version}` : null].filter(Boolean).join(" · ");
};
const drawRate = () => show("rate", {
  id: "rate", label: "Tokens per second of each model, last five minutes", height: 280, empty: "no tokens yet",
  x: { label: "minutes ago", scale: "linear", low: -kKept, high: 0, step: 60,
       format: (x) => `${format.count(-x)} s ago`, tick: (x) => format.count(-x / 60) },
  y: { label: "tokens per second", scale: "linear", zero: true, format: format.number, tick: format.short },
  series: served().map((model) => ({
    name: model.name, style: styleOf(model), markers: false,
    points: (rates.get(model.name) ?? []).map(([time, rate]) => [time - last.uptime_seconds, rate]),
  })),
});

// ---- Bytes per session against those of the softmax model

const findTwin = () => served().find((model) =>
    model.state_kind === "paged" && model.block_bytes > 0 && model.block_tokens > 0);
const bytesAt = (model, position) => (model.state_kind === "fixed" ? model.fixed_bytes
    : (model.fixed_bytes || 0) + Math.ceil(position / model.block_tokens) * model.block_bytes);
// The first position at which the twin needs at least as much as `model`.
const breakEven = (twin, model) => {
  const blocks = Math.ceil((model.fixed_bytes - (twin.fixed_bytes || 0)) / twin.block_bytes);
  return Math.max(0, blocks - 1) * twin.block_tokens + 1;
};
const bytesLine = (model, positions) => ({ name: model.name, style: styleOf(model), markers: false, silent: true,
  points: positions.map((position) => [position, bytesAt(model, position)]) });
// Where a model's sessions are now, on its own line or on the twin's.
const spots = (model, on, name) => ({ name, style: styleOf(model), line: false, faint: true,
  points: [...new Set([mean(model), furthest(model)])].filter((position) => position >= 1)
      .map((position) => [position, bytesAt(on, position)]) });
const bytesWords = (twin, fixed) => {
  if (!twin) return ["No softmax model is served here. Start the server with one more --model to compare, such as " +
      "model/zoo/tales-softmax."];
  const grown = fixed.filter((model) => furthest(model) >= 1);
  if (!grown.length) return ["No session with tokens in it is open. A conversation that stays: " +
      "weir sessions create -m MODEL --id lesson, then weir generate --session lesson \"Once upon a time\"."];
  return grown.map((model) => {
    const position = furthest(model), own = model.fixed_bytes, there = bytesAt(twin, position);
    const compared = there >= own ? `${format.ratio(there / own)} as much`
        : `${format.ratio(own / there)} less: this session has not reached the break-even`;
    return `The furthest session of ${model.name} is at position ${format.count(position)} and keeps ` +
        `${format.bytes(own)}; ${twin.name} would need ${format.bytes(there)} there, ${compared}.`;
  });
};
const bytesTable = (twin, fixed) => {
  const place = (of) => (model) => (of(model) >= 1 ? format.count(of(model)) : null);
  const there = (of) => (model) => (twin && of(model) >= 1 ? format.bytes(bytesAt(twin, of(model))) : null);
  return table(twin ? `Bytes per session, against ${twin.name}` : "Bytes per session", fixed, [
    ["model", (model) => model.name], ["sessions", (model) => format.count(model.sessions)],
    ["bytes per session", (model) => format.count(model.fixed_bytes)],
    ["mean position", place(mean)], ["softmax there", there(mean)],
    ["furthest", place(furthest)], ["softmax there", there(furthest)],
    ["break-even", (model) => (twin ? `${format.count(breakEven(twin, model))} tokens` : null)],
  ]);
};
const drawBytes = () => {
  const twin = findTwin(), fixed = served().filter((model) => model.state_kind === "fixed" && model.fixed_bytes > 0);
  const top = Math.max(100000, ...served().map((model) => 2 * furthest(model)));
  const positions = Array.from({ length: 241 }, (_, step) => 16 * (top / 16) ** (step / 240));
  const shown = twin ? [...fixed, twin] : fixed;
  const evens = twin ? fixed.map((model) => ({ x: breakEven(twin, model), y: model.fixed_bytes, left: true }))
      .sort((a, b) => a.x - b.x) : [];
  if (evens.length) evens.at(-1).text = "break-even";
  show("bytes", {
    id: "bytes", label: "Bytes of one session against its position", height: 380,
    x: { label: "position in the session, tokens", scale: "log", format: format.count, tick: format.short,
         prefix: "position " },
    y: { label: "bytes per session", scale: "log", binary: true, format: format.bytes },
    empty: "no model with a state that this page knows", marks: evens,
    series: [
      ...shown.map((model) => bytesLine(model, positions)),
      ...shown.map((model) => spots(model, model, `${model.name}, its sessions`)),
      ...(twin ? fixed.map((model) => spots(model, twin, `${twin.name} there`)) : []),
    ],
  });
  at("bytes-words").replaceChildren(...bytesWords(twin, fixed).map((sentence) => element("li", null, sentence)));
  at("bytes-table").replaceChildren(bytesTable(twin, fixed));
};

// ---- Slots and blocks

const drawSlots = () => {
  const pools = served().flatMap((model) => [
    { model, what: "slots", total: model.slots_total, free: model.slots_free },
    { model, what: "KV blocks", total: model.kv_blocks_total, free: model.kv_blocks_free },
  ]).filter(({ total }) => total > 0);
  show("slots", { id: "slots", label: "Slots and blocks in use", rows: pools.map(({ model, what, total, free }) => ({
    name: model.name, style: styleOf(model), value: (total - free) / total, total: 1,
    text: `${format.count(total - free)} of ${format.count(total)} ${what}`,
  })) });
};

// ---- The lesson's chart

const cost = { standard: (n, d) => n * n * d, linear: (n, d) => n * d * d };
const input = { n: 1024, d: 128, view: "whole" };
const costTable = () => {
  const { n, d } = input, lengths = [...new Set([d, 1024, 10000, 16384, 100000, 1048576, n])].sort((x, y) => x - y);
  const gain = (value) => (value >= 1 ? format.ratio(value) : `1 / ${format.ratio(1 / value).slice(0, -1)}`);
  return table(`Cost of attention at d = ${d}`, lengths, [
    ["n", format.count], ["n²d", (x) => format.short(cost.standard(x, d))],
    ["nd²", (x) => format.short(cost.linear(x, d))], ["n²d : nd²", (x) => gain(x / d)],
    ["n·n entries", (x) => format.count(x * x)], ["d·d entries", () => format.count(d * d)],
    ["n·n : d·d", (x) => gain((x / d) ** 2)],
  ]);
};
const sayCost = () => {  // only when asked anew: screen readers read it out
  const { n, d } = input, gain = n / d, bold = (text) => element("b", null, text);
  const winner = gain > 1 ? `Linear is ${format.ratio(gain)} cheaper.`
      : `Standard is ${format.ratio(1 / gain)} cheaper.`;
  at("cost").replaceChildren(`At n = ${format.count(n)} and d = ${d} the standard order costs `,
      bold(format.short(cost.standard(n, d))), ", the linear one ", bold(format.short(cost.linear(n, d))), ". ",
      bold(gain === 1 ? "Both cost the same." : winner));
  const times = n > d ? `, about ${format.ratio(gain ** 2)} as many` : "";
  at("entries").textContent = `The matrix in the middle: n·n = ${format.count(n * n)} entries against d·d = ` +
      `${format.count(d * d)}${times}. One more token at position n costs nd = ${format.short(n * d)} against ` +
      `d² = ${format.short(d * d)}.`;
  at("cost-table").replaceChildren(costTable());
};
const measuredWords = (pace, view) => {
  if (!pace.length) return "No measured points yet. They appear while every open session generates and no prompt is " +
      "read: weir sessions create -m MODEL --id lesson, then weir generate --session lesson --max-tokens 5000 " +
      "\"Once upon a time\".";
  const anchor = pace.some(({ model }) => model.state_kind === "fixed") ? "the models with a fixed state" : "the marks";
  return "Marks are this server's own steps (right axis): seconds per token at the mean position of the open sessions" +
      `${view === "whole" ? ", times that position" : ""}. A step also reads all weights, whatever the position, so ` +
      `compare the slopes and not the heights: the axis is moved until ${anchor} lie on the linear line. A softmax ` +
      "model leaves that line where its attention outweighs the weights.";
};
// Seconds per multiplication that put the models with a fixed state (without one: all) on the line of linear attention;
// null while nothing is measured.
const secondsPerMultiplication = (pace, d) => {
  const fixed = pace.filter(({ model }) => model.state_kind === "fixed");
  const seconds = (fixed.length ? fixed : pace).flatMap((one) => one.points.map(([, each]) => each))
      .sort((a, b) => a - b);
  return seconds.length ? seconds[Math.floor(seconds.length / 2)] / (d * d) : null;
};
const drawCost = () => {
  const { n, d, view } = input, whole = view === "whole";
  const share = whole ? () => 1 : (x) => x;  // of the whole, what one token costs
  const lengths = Array.from({ length: 65 }, (_, step) => 2 ** (4 + step / 4)).concat(n, d).sort((a, b) => a - b);
  const line = (name, of, style) =>
      ({ name, style, markers: false, points: lengths.map((x) => [x, of(x, d) / share(x)]) });
  const pace = served().map((model) => ({ model, points: pacePoints(model.name) }))
      .filter(({ points }) => points.length);
  const unit = secondsPerMultiplication(pace, d);
  const measured = pace.map(({ model, points }) => ({
    name: `${model.name}, measured`, style: styleOf(model), line: false,
    points: points.map(([position, seconds]) => [position, (seconds / unit) * (position / share(position))]),
  }));
  show("costs", {
    id: "costs", label: `Cost of attention against sequence length, d = ${d}`, height: 420,
    x: { label: "n, tokens", scale: "log", low: 16, high: 1048576, format: format.count, tick: format.short,
         prefix: "n = " },
    y: { label: `multiplications, ${whole ? "whole sequence" : "one token"}`, scale: "log", format: format.short },
    y2: unit === null ? null : { label: "measured, whole step", factor: unit,
      format: (seconds) => (seconds < 1 ? format.ms(seconds * 1000) : `${format.short(seconds)} s`) },
    series: [line(whole ? "standard, n²d" : "standard, nd", cost.standard, 0),
             line(whole ? "linear, nd²" : "linear, d²", cost.linear, 1), ...measured],
    marks: [{ x: n, text: `n = ${format.count(n)}` },
            { x: d, y: cost.linear(d, d) / share(d), left: true, text: "n = d" }],
  });
  at("measured").textContent = measuredWords(pace, view);
};
const setN = (n) => {
  if (!(n >= 1 && n <= 1048576)) return;
  input.n = Math.round(n);
  at("n").value = input.n;
  at("n-slider").value = Math.round(8 * Math.log2(input.n));
  sayCost();
  drawCost();
};
for (const d of [16, 32, 64, 128, 256, 512])
  at("d").append(element("option", { value: d, selected: d === input.d ? "" : null }, d));
const presets = [["n = d", null], ["1,024", 1024], ["10,000", 10000], ["16K", 16384], ["100,000", 100000], ["1M", 1048576]];
for (const [words, n] of presets) {
  const button = element("button", { type: "button" }, words);
  button.addEventListener("click", () => setN(n ?? input.d));
  at("presets").append(button);
}
at("n-slider").addEventListener("input", () => setN(2 ** (at("n-slider").value / 8)));
at("n").addEventListener("change", () => setN(Number(at("n").value)));
at("d").addEventListener("change", () => {
  input.d = Number(at("d").value);
  sayCost();
  drawCost();
});
for (const radio of document.querySelectorAll("[name=view]"))
  radio.addEventListener("change", () => {
    input.view = radio.value;
    drawCost();
  });

// ---- Asking

const tell = (state, tone, words) => {
  document.documentElement.dataset.state = state;
  at("state").className = `badge ${tone}`;
  if (at("state").textContent !== words) at("state").textContent = words;
  at("now").classList.toggle("stale", state === "paused" || state === "unreachable");
};
const ask = async () => {
  try {
    const answer = await fetch("live.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`it says ${answer.status}`);
    const counters = await answer.json();
    answered = new Date();
    take(counters);
    document.documentElement.dataset.polls = ++polls;
  } catch (error) {
    return paused ||
        tell("unreachable", "bad",
            answered ? `✕ no answer since ${answered.toLocaleTimeString("en-GB")}` : "✕ the server does not answer");
  }
  drawTiles();
  drawRate();
  drawBytes();
  drawSlots();
  drawCost();
  if (paused) return;
  if (last.draining) tell("draining", "bad", "draining: new work goes elsewhere");
  else if (last.serving === false) tell("loading", "", "the models are being loaded");
  else tell("live", "good", "● live");
};
const loop = async () => {
  try {
    if (!paused) await ask();
  } finally {
    setTimeout(loop, 1000);
  }
};
at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").textContent = paused ? "Go on" : "Pause";
  tell(paused ? "paused" : "waiting", "", paused ? "‖ paused" : "waiting for the server");
});
sayCost();
drawCost();
document.documentElement.dataset.ready = "true";
loop();
