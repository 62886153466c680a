"use strict";
// The report's head, what made it, and the page that its parts make.

// ---- The head: what came out

// [title, sentence below or null]
const headline = () => {
  const constant = grown.filter((model) => isFixed(model) && model.growth.verdict === "constant");
  const positions = constant.flatMap((model) => points(model).map((point) => point.position));
  const failed = total("failed");
  if (isUndecided) return ["Undecided", "Nothing was found against the server, and too little for it."];
  if (report.passed === false)
    return ["Failed", list(report.failures).length ? null : "The run did not pass, and the report does not say why."];
  if (constant.length && positions.length) {
    const [first, last] = [Math.min(...positions), Math.max(...positions)].map(format.count);
    return ["0 bytes per token",
            `${names(constant)}: a session costs the same memory at position ${last} as at ${first}.`];
  }
  if (grown.length && grown.every((model) => model.growth.verdict === "as_expected"))
    return ["Memory grows as the shapes say", null];
  if (grown.length) return ["Memory by position: no verdict for all", null];
  const completed = `${format.count(total("completed"))} requests completed`;
  if (phases.length) return [`${completed}, ${failed ? format.count(failed) : "none"} failed`, null];
  const open = models.find((model) => model.capacity);
  return [open ? `${format.count(open.capacity.sessions)} sessions open at once` : "Nothing was measured", null];
};

const growthLines = (model) => {
  const growth = model.growth, last = points(model).at(-1);
  const [tone, words] = verdictOf(growth);
  const process = growth.slope?.[growth.judged] ?? growth.slope?.resident;
  const slopes = [growth.slope?.session, growth.slope?.arena, process].filter((one) => isNumber(one?.bytes_per_token));
  // Of a model that does not keep to its shapes, what the judged witness says that is furthest off.
  const off = (one) => Math.abs(one.bytes_per_token - (growth.expected_bytes_per_token ?? 0));
  const furthest = [...slopes].sort((a, b) => off(b) - off(a))[0];
  const figure = { constant: "0", as_expected: slope(slopes[0]) }[growth.verdict] ?? slope(furthest);
  return [
    element("p", { class: "figure" }, figure, element("small", null, " bytes/token")),
    element("p", { class: `verdict ${tone}` }, words),
    last ? element("p", null, `${format.bytes(last.session_bytes)} a session at ${format.short(last.position)}`) : null,
    process ? element("p", null, `process ${slope(process)}`) : null,
    growth.slope?.device ? element("p", null, `device ${slope(growth.slope.device)}`) : null,
  ];
};
const trafficLines = (model) => {
  const best = served.filter(({ name, figures }) => name === model.name && isNumber(figures.tokens_per_second))
      .sort((a, b) => b.figures.tokens_per_second - a.figures.tokens_per_second)[0];
  if (!best) return [];
  const rate = format.number(best.figures.tokens_per_second), first = sampled(best.figures.ttft_ms);
  return [
    model.growth ? element("p", null, `${rate} tokens/s`)
        : element("p", { class: "figure" }, rate, element("small", null, " tokens/s")),
    element("p", { class: "soft" }, best.phase),
    first ? element("p", { class: "soft" }, `TTFT p50 ${format.ms(first.p50)}`) : null,
  ];
};
const card = (model) => {
  const name = element("span", { title: model.name }, model.name ?? "a model without a name");
  return element("li", null, element("b", null, swatch({ style: model.style }), name),
      model.growth ? growthLines(model) : null, trafficLines(model));
};

const facts = () => [
  report.started ? String(report.started).replace("T", " ").replace(/(\.\d+)?Z$/, " UTC") : null,
  report.server?.device,
  isNumber(report.server?.compute_threads) ? `${report.server.compute_threads} compute threads` : null,
  report.server?.version ? `weir-server ${report.server.version}` : null,
].filter(Boolean).map((fact) => element("span", null, fact));
const badge = () => {
  if (typeof report.passed !== "boolean") return null;
  const [tone, words] = report.passed ? ["good", "✓ passed"] : isUndecided ? ["open", "? undecided"] : ["bad", "✗ failed"];
  return element("span", { class: `badge ${tone}` }, words);
};
// What the paged models pay, beside the claim that the others pay nothing.
const baseline = () => {
  const paged = grown.filter((model) => !isFixed(model) && isNumber(model.growth.slope?.session?.bytes_per_token));
  if (!paged.length || report.passed === false) return null;
  return element("p", null, paged.map(({ name, growth }) =>
      `${name} pays ${slope(growth.slope.session)} bytes per token ` +
      `(its shapes say ${format.number(growth.expected_bytes_per_token)}).`).join(" "));
};
const head = () => {
  const [title, lead] = headline();
  document.title = `${title} – Weir load report`;
  return [
    element("div", { class: "brand" }, element("b", null, "Weir load report"), facts(), badge()),
    element("h1", null, title),
    lead ? element("p", { class: "lead" }, lead) : null,
    list(report.failures).length
        ? element("ul", { class: `plain ${isUndecided ? "open" : "bad"}` }, report.failures.map((why) => element("li", null, String(why)))) : null,
    baseline(),
    element("ul", { class: "cards" }, models.map(card)),
  ];
};

// ---- What made it

const stateWords = ({ state }) => {
  if (!state) return null;
  return state.kind === "fixed" ? `fixed, ${format.count(state.fixed_bytes)} bytes`
      : `paged, ${format.count(state.block_bytes)} bytes for ${format.count(state.block_tokens)} tokens`;
};
const provenance = () => {
  const server = report.server ?? {};
  const run = [
    ["started", report.started], ["took", format.duration(report.seconds)], ["seed", format.count(report.seed)],
    ["server", server.address], ["version", server.version], ["device", server.device],
    ["compute threads", format.count(server.compute_threads)],
  ].filter(([, value]) => value && value !== "–");
  return [
    report.command ? element("pre", { tabindex: 0, "aria-label": "command" }, String(report.command)) : null,
    table("The run", run, [["", ([what]) => what], ["", ([, value]) => String(value)]]),
    models.length ? table("Models", models, [
      ["model", (model) => model.name], ["mixer", (model) => model.mixer],
      ["architecture", (model) => model.architecture],
      ["parameters", (model) => format.count(model.parameters)], ["weights", (model) => model.weight_dtype],
      ["state", stateWords],
    ]) : null,
  ];
};

// ---- The page

// A part that cannot be drawn says so and takes no other part with it.
const draw = (what, build) => {
  try {
    return build();
  } catch (error) {
    document.documentElement.dataset.errors = ++pageErrors.count;
    return [element("p", { class: "bad" }, `${what} could not be drawn: ${error.message}`)];
  }
};
const parts = [
  ["memory", "Memory against position", memory], ["break-even", "Break-even", breakEven],
  ["itl", "Time per token against position", itlByPosition], ["latency", "Latency", latency],
  ["throughput", "Throughput", throughput], ["errors", "Errors", errors], ["capacity", "Capacity", capacity],
  ["run", "How this was made", provenance],
].map(([id, title, build]) => [id, title, draw(title, build)]).filter(([, , content]) => content);

fill(document.getElementById("head"), null, [draw("The head", head),
  element("nav", { "aria-label": "parts of this report" },
      parts.map(([id, title]) => element("a", { href: `#${id}` }, title)))]);
fill(document.getElementById("main"), null, parts.map(([id, title, content]) => {
  const label = `${id}-title`;
  return element("section", { id, "aria-labelledby": label }, element("h2", { id: label }, title), content);
}));
// On paper the tables are open, but for those of many pages.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => {
  details.open = details.open || details.querySelectorAll("tr").length <= 100;
}));
document.documentElement.dataset.ready = "true";
