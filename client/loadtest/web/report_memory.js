"use strict";
// The report's parts about memory: the charts of all witnesses, the verdicts, the break-even.

const positionAxis = {
  label: "position in the session, tokens", scale: "log", format: format.count, tick: format.short, prefix: "position ",
};
const bytesAxis = (label) => ({ label, scale: "log", binary: true, format: format.bytes });
const grownSeries = (some, value) => some.map((model) => ({
  name: model.name, style: model.style, points: points(model).map((point) => [point.position, value(point, model)]),
}));

// ---- One session, as the server accounts for it

// What the shapes say that a session needs at a position; null where the report does not say.
const expectedBytes = (model, position) => {
  const { fixed_bytes: fixed, block_bytes: block, block_tokens: tokens } = model.state ?? {};
  if (isFixed(model)) return fixed || null;
  if (block && tokens) return (fixed || 0) + Math.ceil(position / tokens) * block;
  return model.growth?.expected_bytes_per_token * position || null;
};
// The dotted lines: of a model with a fixed state up to its first measured point, of the others all the way.
const expectedSeries = (from, to) => grown.filter((model) => points(model).length).map((model) => {
  const until = isFixed(model) ? Math.min(...points(model).map((point) => point.position)) : to;
  const positions = Array.from({ length: 241 }, (_, step) => from * (until / from) ** (step / 240));
  return {
    name: isFixed(model) ? model.name : `${model.name}, expected`, style: model.style,
    dotted: true, markers: false, silent: true, faint: isFixed(model),
    points: until < from ? [] : positions.map((position) => [position, expectedBytes(model, position)]),
  };
});
const memoryChart = () => {
  const measured = grown.flatMap((model) => points(model).map((point) => point.position));
  const crossings = grown.flatMap((model) => list(model.break_even)
      .map((even) => ({ x: even.tokens, y: expectedBytes(model, 1), left: true })))
      .filter(({ x, y }) => x > 0 && y).sort((a, b) => a.x - b.x);
  if (crossings.length) crossings.at(-1).text = "break-even";
  const refused = grown.filter((model) => model.growth.stopped?.position > 0).map((model) => {
    const { position, reason } = model.growth.stopped;
    const text = `${model.name} ended${reason ? `: ${reason}` : ""}`;
    return { x: position, y: expectedBytes(model, position) ?? undefined, text };
  });
  const from = Math.max(1, Math.min(...measured, ...crossings.map(({ x }) => x / 2)));
  return chartFigure({
    id: "memory", label: "Bytes per session against position", height: 400,
    x: positionAxis, y: bytesAxis("bytes per session"), marks: [...refused, ...crossings],
    series: [...expectedSeries(from, Math.max(...measured)), ...grownSeries(grown, (point) => point.session_bytes)],
  });
};

// ---- The other witnesses

const witnesses = [
  ["arena", "Arena, bytes per session", (point, model) => point.arena_bytes / (model.growth.sessions || 1)],
  ["anonymous", "Process, its own pages (anonymous)", (point) => point.process_anonymous_bytes],
  ["resident", "Process, resident (RSS)", (point) => point.process_resident_bytes],
  ["proportional", "Process, proportional (PSS)", (point) => point.process_proportional_bytes],
  ["device", "Device", (point) => point.device_bytes],
];
const panel = (title, spec) => element("div", null, element("h3", null, title),
    chartFigure({ height: 260, legend: false, endLabels: false, ...spec }).figure);
const panels = (figures) => element("figure", { class: figures.length % 3 ? "panels two" : "panels" }, figures);
const witnessPanels = () => witnesses
    .filter(([, , value]) => grown.some((model) => points(model).some((point) => value(point, model) > 0)))
    .map(([id, title, value]) => panel(title, { id, label: `${title} against position`, x: positionAxis,
                                                y: bytesAxis("bytes"), series: grownSeries(grown, value) }));

// Growth of the process since the first sample, against a line of 1 byte per token: a leak would climb along it.
const leakSeries = (key) => grown.filter(isFixed).map((model) => {
  const samples = list(model.growth.samples)
      .filter((sample) => sample[key] > 0 && isNumber(sample.tokens) && sample.measured !== false);
  const grownBy = samples.map((sample) => [sample.tokens - samples[0].tokens, sample[key] - samples[0][key]]);
  return { name: model.name, style: model.style, markers: false, points: grownBy };
}).filter((one) => one.points.length > 1);
const leakLimit = { name: "1 byte per token", style: 0, dotted: true, markers: false, silent: true };
const leakPanels = () => witnesses.slice(1).flatMap(([key, title]) => {
  const series = leakSeries(key);
  if (!series.length) return [];
  const last = most(series.flatMap((one) => one.points.map(([tokens]) => tokens)));
  return [panel(title, {
    id: `leak-${key}`, label: `Growth of ${title} against tokens`,
    x: { label: "tokens fed to all sessions since the first sample", scale: "linear", format: format.count,
         tick: format.short },
    y: { label: "growth since the first sample", scale: "linear", zero: true, binary: true, format: format.bytes },
    series: [{ ...leakLimit, points: [[0, 0], [last, last]] }, ...series],
  })];
});

// ---- Verdicts and tables

const refusals = () => grown.filter((model) => model.growth.stopped).map(({ name, growth: { stopped } }) => {
  const why = [stopped.reason, stopped.message].filter(Boolean).join(", ") || "no reason given";
  return element("li", null, `${name} ended at position ${format.count(stopped.position)}: ${why}`);
});
const verdictTable = () => {
  const fitted = witnessKeys.filter((key) => grown.some((model) => model.growth.slope?.[key]));
  return table("Least squares over all samples", grown, [
    ["model", (model) => model.name],
    ["verdict", ({ growth }) => {
      const [tone, words] = verdictOf(growth);
      return element("span", { class: tone }, words);
    }],
    ["expected", ({ growth }) => format.number(growth.expected_bytes_per_token)],
    ...fitted.map((key) => [witnessNames[key], ({ growth }) => slope(growth.slope?.[key])]),
  ]);
};
const bytesTable = () => {
  const rows = grown.flatMap((model) => points(model).map((point) => ({ model, point })));
  const bytes = (head, key) => [head, ({ point }) => format.count(point[key])];
  return table("Bytes at each position", rows, [
    ["model", ({ model }) => model.name], bytes("position", "position"),
    ["sessions", ({ model }) => format.count(model.growth.sessions)], bytes("per session", "session_bytes"),
    bytes("arena", "arena_bytes"), bytes("own pages", "process_anonymous_bytes"),
    bytes("RSS", "process_resident_bytes"), bytes("PSS", "process_proportional_bytes"),
    bytes("device", "device_bytes"),
  ]);
};
const memory = () => {
  if (!grown.some((model) => points(model).length)) return null;
  const leaks = leakPanels(), stops = refusals();
  return [
    element("p", null, "The server's own accounting of one session. Dotted: what the shapes of the weights say. ",
        "A ring marks the break-even, where a fixed state and a cache that grows cost the same."),
    element("figure", null, memoryChart().figure),
    stops.length ? element("ul", { class: "plain" }, stops) : null,
    element("h3", null, "Verdicts, with slopes in bytes per token and 95 % intervals"),
    verdictTable(),
    element("ul", { class: "plain soft" }, grown.filter((model) => model.growth.why)
        .map((model) => element("li", null, element("span", { class: verdictOf(model.growth)[0] },
            verdictOf(model.growth)[1]), ` ${model.name}: ${model.growth.why}`))),
    element("h3", null, "The other witnesses"), legend(grown), panels(witnessPanels()),
    leaks.length ? [
      element("h3", null, "Could a leak hide in the process?"),
      element("p", null, "Growth of the whole process while all sessions advance, models with a fixed state only. ",
          "The dotted line is the limit of 1 byte per token."),
      legend([...grown.filter(isFixed), leakLimit]), panels(leaks),
    ] : null,
    folded("Memory by position, in bytes", bytesTable()),
  ];
};
const breakEven = () => {
  const evens = models.flatMap((model) => list(model.break_even).filter((even) => isNumber(even.tokens))
      .map((even) => ({ model, ...even })));
  if (!evens.length) return null;
  const sentence = ({ model, against, tokens }) => {
    const bytes = model.state?.fixed_bytes ? ` (${format.count(model.state.fixed_bytes)} bytes)` : "";
    const reached = Math.max(0, ...points(model).map((point) => point.position));
    if (tokens < 1) return `A session of ${model.name}${bytes} never needs more memory than one of ${against}.`;
    return `Below ${format.count(tokens)} tokens a session of ${model.name}${bytes} needs more memory than one of ` +
        `${against}; from there on it does not.` +
        (reached && reached < tokens ? " No session of this run was long enough to gain." : "");
  };
  return [
    element("p", null, "Constant is not small: a fixed state is paid for in full from the first token. And bounded ",
        "memory is lossy recall: what does not fit is forgotten."),
    element("ul", { class: "plain" }, evens.map((even) => element("li", null, sentence(even)))),
  ];
};
