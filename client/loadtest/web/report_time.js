"use strict";
// The report's parts about time: between tokens by position, latencies, throughput, errors, capacity.

// ---- Tables of distributions

const percentiles = [["p50", "p50"], ["p90", "p90"], ["p99", "p99"], ["p999", "p99.9"], ["max", "max"]];
const summaryColumns = (summaryOf) => [
  ["samples", (row) => format.count(summaryOf(row)?.count)],
  ...[["mean", "mean"], ...percentiles].map(([key, head]) =>
      [head, (row) => format.ms(sampled(summaryOf(row))?.[key])]),
];

// ---- Between tokens, by position

// The mean time per token, with the middle 80 % of the tokens (null where tokens came in one message only).
const itlOf = (point) => sampled(point.itl_ms)?.mean;
const itlRange = (point) => [sampled(point.itl_ms)?.p10, sampled(point.itl_ms)?.p90];
// A logarithmic axis of ms, unless there are zeros to be shown: of tokens that share a message, one has the whole gap.
const msAxis = (label, values) => ({ label, scale: values.includes(0) ? "linear" : "log", zero: true, format: format.ms,
                                     tick: format.number });
const kSharedMessage = "Of tokens that share a message the first has the whole gap, the others 0.";
const itlBand = (model) =>
    ({ bandName: "p90", band: points(model).map((point) => [point.position, ...itlRange(point)]) });
// One panel for each model, with its band; all with the same axes.
const itlPanels = (timed) => {
  const all = timed.flatMap(points);
  const times = all.flatMap((point) => [itlOf(point), ...itlRange(point)]).filter(isNumber);
  const positions = all.map((point) => point.position);
  const around = (values) => ({ low: Math.min(...values) / 1.2, high: Math.max(...values) * 1.2 });
  return timed.map((model) => {
    const chart = chartFigure({
      id: "itl-band", label: `Time per token of ${model.name}, mean, and p10 to p90`,
      height: 220, legend: false, endLabels: false,
      x: { ...positionAxis, ...around(positions) },
      y: { ...msAxis("mean, and p10 to p90, ms", times), ...around(times) },
      series: grownSeries([model], itlOf).map((one) => ({ ...one, ...itlBand(model) })),
    });
    return element("div", null, element("h3", null, model.name), chart.figure);
  });
};
const itlWords = (point) => {
  const [low, high] = itlRange(point);
  return format.ms(itlOf(point)) + (isNumber(low) && isNumber(high) ? ` (${format.ms(low)} to ${format.ms(high)})` : "");
};
// A difference is worth a number only beside what the tokens of one position differ by.
const itlChange = (first, last) => {
  const [low, high] = itlRange(first), [lastLow, lastHigh] = itlRange(last);
  if (![low, high, lastLow, lastHigh].every(isNumber)) return "";
  const percent = Math.round(100 * (itlOf(last) / itlOf(first) - 1));
  const sign = percent > 0 ? "+" : percent < 0 ? "−" : "±";
  const apart = lastLow > high || lastHigh < low;
  return `: ${sign}${format.count(Math.abs(percent))} %, ${apart ? "more" : "less"} than the tokens' own spread`;
};
const itlSentence = (model) => {
  const timed = points(model).filter((point) => isNumber(itlOf(point)));
  const first = timed[0], last = timed.at(-1);
  const start = `${model.name}: ${itlWords(first)} at position ${format.count(first.position)}`;
  if (first === last) return `${start}.`;
  return `${start}, ${itlWords(last)} at ${format.count(last.position)}${itlChange(first, last)}.`;
};
const itlByPosition = () => {
  const timed = grown.filter((model) => points(model).some((point) => isNumber(itlOf(point))));
  if (!timed.length) return null;
  const alone = timed.length === 1;  // then the band fits into the chart of all
  const times = timed.flatMap(points).map(itlOf);
  const chart = chartFigure({
    id: "itl-position", label: "Time per token against position, mean", height: 340,
    x: positionAxis, y: msAxis("time per token, ms", times),
    series: grownSeries(timed, itlOf).map((one, index) => (alone ? { ...one, ...itlBand(timed[index]) } : one)),
  });
  const rows = timed.flatMap((model) => points(model).map((point) => ({ model, point })));
  return [
    element("p", null, "Mean time per token while all sessions generate: from a session's first message to its last, ",
        `over the tokens behind the first. ${alone ? "Shade" : "In brackets"}: p10 to p90. `,
        "The gap between two messages is shared evenly by the tokens of the second."),
    element("figure", null, chart.figure),
    element("ul", { class: "plain" }, timed.map((model) => element("li", null, itlSentence(model)))),
    alone ? null : element("figure", { class: "panels" }, itlPanels(timed)),
    folded("Time per token by position", table("Time per token", rows, [
      ["model", ({ model }) => model.name],
      ["position", ({ point }) => format.count(point.position)],
      ["p10", ({ point }) => format.ms(sampled(point.itl_ms)?.p10)],
      ...summaryColumns(({ point }) => point.itl_ms),
    ])),
  ];
};

// ---- Latencies of one phase of traffic, which the reader chooses

const latencies = [
  ["ttft_ms", "Time to first token (TTFT)"], ["itl_ms", "Time between tokens (ITL)"],
  ["tpot_ms", "Time per output token of a request (TPOT)"], ["e2e_ms", "Whole request (E2E)"],
  ["first_text_ms", "Time to first text"],
];
const latencySpec = (phase, key, title) => {
  const series = phase.rows.map(({ name, style, figures }) => ({
    name, style, points: percentiles.map(([field], index) => [index, sampled(figures[key])?.[field]]),
  }));
  return {
    id: key, label: `${title}, ${phase.label}`, height: 250, legend: false, endLabels: false, series,
    x: { label: "", scale: "category", names: percentiles.map(([, name]) => name), format: format.number },
    y: msAxis("ms", series.flatMap((one) => one.points.map(([, value]) => value))),
  };
};
const timelineSpec = (phase) => ({
  id: "timeline", label: `Tokens per second over time, ${phase.label}`, height: 300,
  x: { label: "seconds since the phase began", scale: "linear", whole: true, tick: format.count, prefix: "at ",
       format: (second) => `${format.count(second)} s` },
  y: { label: "tokens per second", scale: "linear", zero: true, format: format.number, tick: format.short },
  series: phase.rows.map(({ name, style, figures }) => ({
    name, style, markers: false, points: list(figures.timeline).map((at) => [at.second, at.tokens]),
  })),
});
const latencyTable = () => {
  const rows = served.flatMap((row) => latencies.filter(([key]) => sampled(row.figures[key]))
      .map(([key, title]) => ({ ...row, what: title.replace(/.*\((.*)\)/, "$1"), summary: row.figures[key] })));
  return table("Latencies", rows, [
    ["model", ({ name }) => name], ["traffic", ({ phase }) => phase], ["what", ({ what }) => what],
    ...summaryColumns(({ summary }) => summary),
  ]);
};
const timelineTable = () => {
  const rows = phases.flatMap((phase) => phase.rows.flatMap(({ name, figures }) =>
      list(figures.timeline).map((at) => ({ name, phase: phase.label, at }))));
  return table("Timeline", rows, [
    ["model", ({ name }) => name], ["traffic", ({ phase }) => phase], ["second", ({ at }) => format.count(at.second)],
    ["tokens", ({ at }) => format.count(at.tokens)], ["running", ({ at }) => format.count(at.running)],
    ["TTFT p50", ({ at }) => format.ms(at.ttft_p50_ms)],
  ]);
};
const latency = () => {
  if (!served.some(({ figures }) => latencies.some(([key]) => sampled(figures[key])))) return null;
  let shown = phases.findLast((phase) => !phase.whole) ?? phases[0];  // the last of a sweep: the heaviest
  const plots = latencies.slice(0, 4).map(([key, title]) =>
      ({ key, title, chart: chartFigure(latencySpec(shown, key, title)) }));
  const hasTimeline = phases.some((phase) => phase.rows.some((row) => list(row.figures.timeline).length > 1));
  const timeline = hasTimeline ? chartFigure(timelineSpec(shown)) : null;
  const keys = element("div", null, legend(shown.rows));
  const choice = element("select", null, phases.map((phase, index) =>
      element("option", { value: index, selected: phase === shown ? "" : null }, phase.label)));
  choice.addEventListener("change", () => {
    shown = phases[Number(choice.value)];
    keys.replaceChildren(legend(shown.rows));
    for (const { key, title, chart } of plots) chart.draw(latencySpec(shown, key, title));
    timeline?.draw(timelineSpec(shown));
  });
  const overTime = timeline ? [
    element("h3", null, "Tokens per second over time"), element("figure", null, timeline.figure),
    folded("Tokens in each second", timelineTable()),
  ] : null;
  return [
    element("p", null, "From the schedule: a request that had to wait for its turn counts its wait.",
        served.some(({ figures }) => sampled(figures.itl_ms)?.p50 === 0) ? ` ${kSharedMessage}` : null),
    element("div", { class: "controls" }, element("label", null, "Traffic: ", choice)), keys,
    element("figure", { class: "panels two" }, plots.map(({ title, chart }) =>
        element("div", null, element("h3", null, title), chart.figure))),
    folded("Latency percentiles of all traffic", latencyTable()), overTime,
  ];
};

// ---- Throughput

// Tokens per second against what the traffic was made with; null where there is only one of it.
const throughputAgainst = (key, label) => {
  const series = models.map((model) => ({
    name: model.name, style: model.style,
    points: list(model.traffic).filter((figures) => isNumber(figures[key]))
        .map((figures) => [figures[key], figures.tokens_per_second]).sort((a, b) => a[0] - b[0]),
  }));
  if (new Set(series.flatMap((one) => one.points.map(([x]) => x))).size < 2) return null;
  return chartFigure({
    id: `throughput-${key}`, label: `Throughput against ${label}`, height: 320, series,
    x: { label, scale: "log", binary: true, factor: 2, format: format.number },
    y: { label: "tokens per second", scale: "linear", zero: true, format: format.number, tick: format.short },
  });
};
const throughputBars = () => chartFigure({
  id: "throughput", label: "Tokens per second",
  rows: served.map(({ name, phase, style, figures }) => ({
    name: phases.length > 1 ? `${name}, ${phase}` : name, style, value: figures.tokens_per_second ?? 0,
    text: `${format.number(figures.tokens_per_second)} tokens/s`,
  })),
});
const requestTable = () => {
  const rows = phases.flatMap((phase) => phase.rows.map((row) => ({ ...row, phase: phase.label })));
  const requests = ["scheduled", "completed", "cancelled", "failed", "empty"];
  const rates = [["tokens/s", "tokens_per_second"], ["requests/s", "requests_per_second"],
                 ["goodput/s", "goodput_per_second"]];
  return table("Requests", rows, [
    ["model", ({ name }) => name], ["traffic", ({ phase }) => phase],
    ...requests.map((key) => [key, ({ figures }) => format.count(figures.requests?.[key])]),
    ...rates.map(([head, key]) => [head, ({ figures }) => format.number(figures[key])]),
  ]);
};
const throughput = () => {
  if (!served.some(({ figures }) => isNumber(figures.tokens_per_second))) return null;
  const against = [throughputAgainst("concurrency", "requests at once"),
                   throughputAgainst("rate", "requests per second, from the schedule")].filter(Boolean);
  const limits = [["ttft_ms", "TTFT"], ["tpot_ms", "TPOT"], ["e2e_ms", "E2E"]]
      .filter(([key]) => isNumber(report.limits?.[key]))
      .map(([key, name]) => `${name} at most ${format.ms(report.limits[key])}`);
  return [
    (against.length ? against : [throughputBars()]).map((chart) => element("figure", null, chart.figure)),
    element("p", { class: "soft" }, limits.length ? `Goodput counts requests with ${limits.join(", ")}.`
        : "No latency limits were set: goodput counts every completed request."),
    folded("Requests and throughput", requestTable()),
  ];
};

// ---- Errors, capacity

const errors = () => {
  if (!served.length) return null;
  const rows = served.flatMap((row) => Object.entries(row.figures.errors ?? {}).map(([reason, count]) =>
      ({ ...row, reason, count, message: row.figures.error_messages?.[reason] ?? "" })));
  const failed = total("failed"), empty = total("empty");
  return [
    rows.length ? table("Failed requests", rows, [
      ["model", ({ name }) => name], ["traffic", ({ phase }) => phase], ["reason", ({ reason }) => reason],
      ["requests", ({ count }) => format.count(count)],
      ["for example", ({ message }) => element("span", { class: "words" }, message)],
    ]) : element("p", null, failed ? `${format.count(failed)} requests failed.` : "No request failed."),
    empty ? element("p", { class: "bad" }, `${format.count(empty)} streams ended without an error and without a token.`,
        " They count as empty, not as completed work.") : null,
  ];
};
const capacity = () => {
  const open = models.filter((model) => model.capacity);
  if (!open.length) return null;
  const afterDelete = { true: "accepted", false: "refused" };
  const tried = (value, words) => (value === null || value === undefined ? "not tried" : words(value));
  return [
    element("p", null, "Sessions opened until the server refused one. All open ones then generated a token."),
    table("Capacity", open, [
      ["model", ({ name }) => name], ["sessions", (model) => tried(model.capacity.sessions, format.count)],
      ["with a token", (model) => tried(model.capacity.sessions_with_token, format.count)],
      ["state", (model) => format.bytes(model.capacity.arena_bytes)],
      ["the next one", (model) => tried(model.capacity.refused_with, String)],
      ["after one delete", (model) => tried(model.capacity.accepted_after_delete, (accepted) => afterDelete[accepted])],
      ...[["create", "create_ms"], ["first token", "first_token_ms"]].flatMap(([what, key]) => ["p50", "p99"].map(
          (part) => [`${what} ${part}`, (model) => format.ms(sampled(model.capacity[key])?.[part])])),
      ["step", (model) => format.ms(model.capacity.step_ms)],
    ]),
  ];
};
