"use strict";
// The report of one run of `weir loadtest`, as the page holds it (JSON, schema 1), and what its parts share. Anything in
// it may be missing.
const report = JSON.parse(document.getElementById("report").textContent) ?? {};
const list = (value) => (Array.isArray(value) ? value : []);
const models = list(report.models);

// Softmax models are the baseline and come in ink; the others take the colours in turn.
let colours = 0;
models.forEach((model) => {
  const baseline = model.state?.kind === "paged" && !models.some((other) => other.style === 0);
  model.style = baseline ? 0 : 1 + (colours++ % (kStyles - 1));
});
const isFixed = (model) => model.state?.kind === "fixed";
const points = (model) => list(model.growth?.points).filter((point) => isNumber(point.position));
const grown = models.filter((model) => model.growth);
const names = (some) => some.map((model) => model.name).join(", ");
// "0.004 ± 0.021": a slope with half its 95 % interval. What is counted to the byte and does not move is exact; a few
// readings on a line are not.
const slope = (value) => {
  if (!isNumber(value?.bytes_per_token)) return "–";
  if (value.exact) return `${format.number(value.bytes_per_token)} exactly`;
  const half = (value.high - value.low) / 2;
  if (!isNumber(value.low) || !isNumber(value.high))
    return `${format.number(value.bytes_per_token)} (${format.count(value.samples)} readings, no interval)`;
  const places = half >= 0.95 ? 1 : half >= 0.095 ? 2 : 3;
  return `${digits(value.bytes_per_token, places)} ± ${digits(half, places)}`;
};
// A distribution of no samples is none.
const sampled = (distribution) => (distribution && distribution.count !== 0 ? distribution : null);

// As in `slope`. The first two are the server's accounting, the last its device's, the others what the kernel says of
// the process.
const witnessNames = {
  session: "session", arena: "arena", anonymous: "process, own pages", resident: "process RSS",
  proportional: "process PSS", device: "device",
};
const witnessKeys = Object.keys(witnessNames);
const verdicts = {
  constant: ["good", "✓ constant"], as_expected: ["good", "✓ as its shapes say"],
  grows: ["bad", "✗ grows"], undecided: ["open", "? undecided"],
};
// A verdict that is open for a reason that is a failure (a server that was lost) is one.
const verdictOf = ({ verdict, outcome }) => {
  const [tone, words] = verdicts[verdict] ?? ["", String(verdict ?? "no verdict")];
  return [outcome === "failed" ? "bad" : tone, words];
};
// All that keeps the run from passing is growth on which nothing was decided.
const isUndecided = report.passed === false && list(report.failures).length > 0 &&
    list(report.failures).length === grown.filter((model) => model.growth.outcome === "undecided").length;

// ---- Phases of traffic: the same arrivals for each model are one phase, and so is each mixed run.

const phaseName = ({ arrivals, concurrency, rate, turns }) => {
  const closed = arrivals === "closed" || isNumber(concurrency);
  const how = closed ? `${format.count(concurrency)} at once`
      : `${arrivals === "poisson" ? "Poisson" : "constant"} ${trimmed(format.number(rate))}/s`;
  return turns > 1 ? `${how}, ${turns} turns` : how;
};
// [{label, rows: [{name, style, figures}…], whole: figures of all models of a mixed run}…]
const phases = [];
for (const model of models)
  for (const figures of list(model.traffic)) {
    const label = phaseName(figures);
    const phase = phases.find((other) => other.label === label) ?? phases[phases.push({ label, rows: [] }) - 1];
    phase.rows.push({ name: model.name, style: model.style, figures });
  }
for (const figures of list(report.mixed)) {
  const rows = Object.entries(figures.models ?? {}).map(([name, part], index) => {
    const known = models.find((model) => model.name === name);
    return { name, style: known ? known.style : 1 + (index % (kStyles - 2)), figures: part };
  });
  const all = { name: "all models", style: kStyles - 1, figures };
  phases.push({ label: `mixed, ${phaseName(figures)}`, whole: figures, rows: [all, ...rows] });
}
// Every model's figures in every phase.
const served = phases.flatMap((phase) => phase.rows.filter((row) => row.figures !== phase.whole)
    .map((row) => ({ ...row, phase: phase.label })));
const total = (key) => phases.flatMap((phase) => (phase.whole ? [phase.whole] : phase.rows.map((row) => row.figures)))
    .reduce((sum, figures) => sum + (figures.requests?.[key] ?? 0), 0);
