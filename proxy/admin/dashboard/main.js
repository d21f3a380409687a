// The page: asks, keeps two minutes of answers, and draws.

const $ = id => document.getElementById(id);
const span = 120, kept = 4000, detailed = 100;
const everything = "all services";

const answers = []; // of /stats, up to span + 1
const timeline = new Timeline(kept);
let paused = false, chosen = null; // where the reader clicked, as a millisecond

async function ask(path) {
  // A path alone would inherit a name and password in the page's address, which fetch refuses.
  const response = await fetch(location.origin + path, { cache: "no-store" });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${(await response.text()).trim()}`);
  return response.json();
}

// every calls f again and again, a pause after its end, and says what goes wrong.
async function every(milliseconds, f) {
  const trouble = $("trouble").appendChild(document.createElement("span"));
  for (;;) {
    if (!paused && !document.hidden) {
      try {
        await f();
        trouble.textContent = "";
      } catch (e) {
        trouble.textContent = e.message + " ";
      }
      $("trouble").hidden = $("trouble").textContent === "";
    }
    await new Promise(done => setTimeout(done, milliseconds));
  }
}

const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };

function cell(value, className) {
  const td = document.createElement("td");
  if (value instanceof Node) td.append(value);
  else td.textContent = value;
  if (className) td.className = className;
  return td;
}

function fill(table, rows) {
  table.replaceChildren(...rows.map(cells => {
    const tr = document.createElement("tr");
    tr.append(...cells);
    return tr;
  }));
}

function names(answer) {
  const all = Object.keys(answer.services).sort(), want = $("service").value;
  const options = all.length > 1 ? [everything, ...all] : all;
  const have = [...$("service").options].map(o => o.value);
  if (have.join("\n") !== options.join("\n")) {
    $("service").replaceChildren(...options.map(o => new Option(o)));
    if (options.includes(want)) $("service").value = want;
  }
  return $("service").value === everything ? all : [$("service").value];
}

function drawStats() {
  const now = answers[answers.length - 1], services = names(now);
  text("node", now.node);
  text("phase", now.phase);
  $("phase").className = "badge " + now.phase;
  text("uptime", `${now.version} · up ${duration(now.uptime_seconds)} · ${now.connections} connections`);
  document.title = `Remora ${now.node}`;
  if (answers.length < 2) return;

  const points = [];
  for (let i = 1; i < answers.length; i++) points.push(counted(answers[i - 1], answers[i], services));
  const last = points[points.length - 1];
  const of = q => points.map(p => quantile(p.latency, now.bounds_seconds, q));
  const p50 = of(0.5), p99 = of(0.99), p999 = of(0.999);
  const rate = points.map(p => p.requests / p.seconds), failed = points.map(p => p.failed / p.seconds);
  const sent = points.map(p => Math.max(0, p.sent - p.missed) / p.seconds), won = points.map(p => p.won / p.seconds);

  const newest = a => a[a.length - 1];
  text("rate", whole(newest(rate)));
  text("p50", time(newest(p50)));
  text("p99", time(newest(p99)));
  text("p999", time(newest(p999)));
  text("failed", count(newest(failed)));
  text("hedged", last.requests ? (100 * Math.max(0, last.sent - last.missed) / last.requests).toFixed(1) + " %" : "–");
  text("pending", whole(last.pending));
  text("queued", whole(last.queued));

  chart("rate", [["requests", "--blue", rate], ["failed", "--red", failed]], linear, count, count);
  chart("latency", [["P50", "--green", p50], ["P99", "--orange", p99], ["P99.9", "--red", p999]], logarithmic, time, time);
  chart("hedge", [["sent", "--violet", sent], ["won", "--green", won]], linear, count, count);
  drawGates(points.slice(-60));
  text("verdicts", verdicts(now, services).join("\n"));
  drawEndpoints(answers[answers.length - 2], now, services);
  drawLoops(answers[Math.max(0, answers.length - 11)], now);
}

function chart(id, series, scale, tick, value) {
  drawLines($(id + "-chart"), series.map(([, colour, values]) => ({ colour, values })), span, scale, tick);
  $(id + "-legend").replaceChildren(...series.flatMap(([name, colour, values]) => {
    const line = document.createElement("i");
    line.style.background = `var(${colour})`;
    return [line, `${name} ${value(values[values.length - 1])}`];
  }));
}

function bar(share) {
  const b = document.createElement("span");
  b.className = "bar";
  b.style.width = Math.max(share > 0 ? 2 : 0, 100 * share) + "px";
  return b;
}

function drawGates(points) {
  const sums = {};
  for (const p of points) for (const [gate, n] of Object.entries(p.gates)) sums[gate] = (sums[gate] || 0) + n;
  const most = Math.max(...Object.values(sums), 1);
  fill($("gates"), Object.keys(sums).sort().map(gate => {
    const value = document.createElement("span");
    value.append(bar(sums[gate] / most), whole(sums[gate]));
    return [cell(gate), cell(value, "left")];
  }));
}

const stateOf = e => e.ejected ? "ejected" : e.healthy === false ? "unhealthy" : e.unused ? "unused" : e.stalled ? "stalled" : "ok";

function drawEndpoints(before, now, services) {
  const rows = [], seconds = now.uptime_seconds - before.uptime_seconds;
  let known = 0, most = 1;
  for (const name of services) {
    known += now.services[name].endpoints_known;
    for (const e of now.services[name].endpoints) most = Math.max(most, e.pending);
  }
  for (const name of services) {
    const was = new Map((before.services[name]?.endpoints || []).map(e => [e.address, e]));
    for (const e of now.services[name].endpoints) {
      const old = was.get(e.address) || e;
      const perSecond = key => count(Math.max(0, e[key] - old[key]) / seconds);
      const pending = document.createElement("span");
      pending.append(bar(e.pending / most), String(e.pending));
      const state = cell(stateOf(e), "state " + stateOf(e));
      if (e.ejected) state.title = "ejected for " + e.ejected;
      rows.push([
        cell(e.address), cell(name), state, cell(pending, "left"), cell(perSecond("attempts")), cell(perSecond("failed")),
        cell(perSecond("hedges")), cell(time(e.latency_ms / 1000)), cell(String(e.connections)),
        cell(e.reported === undefined ? "–" : count(e.reported)),
      ]);
    }
  }
  text("endpoints-note", rows.length < known ? `${rows.length} of ${known}` : String(known));
  fill($("endpoints").tBodies[0], rows);
}

function drawLoops(before, now) {
  const seconds = now.uptime_seconds - before.uptime_seconds;
  fill($("loops").tBodies[0], now.loops.map((loop, i) => {
    const old = before.loops[i], turns = loop.turn_counts.map((n, k) => n - old.turn_counts[k]);
    const total = turns.reduce((a, n) => a + n, 0);
    const at = q => time(quantile(turns, now.bounds_seconds, q));
    return [cell(String(i)), cell(String(loop.connections)), cell(whole(total / seconds)),
      cell(total ? count((loop.events - old.events) / total) : "–"), cell(at(0.5)), cell(at(0.99)), cell(at(1))];
  }));
}

// lane adds a canvas with its name; it returns the canvas.
function lane(parent, name) {
  const div = document.createElement("div"), label = document.createElement("span"), canvas = document.createElement("canvas");
  div.className = "lane";
  label.textContent = name;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", name);
  div.append(label, canvas);
  parent.append(div);
  return canvas;
}

const lanes = [
  ["arrivals", "requests", "--blue", whole], ["bytes", "bytes", "--violet", bytes], ["worst", "worst latency", "--orange", us => time(us / 1e6)],
].map(([key, name, colour, format]) => ({
  key, colour, format, wide: lane($("overview"), name), near: lane($("detail"), name),
}));

function drawMilliseconds() {
  const n = timeline.arrivals.length, total = timeline.arrivals.reduce((a, k) => a + k, 0);
  const busiest = timeline.busiest(), peak = timeline.arrivals[busiest];
  if (chosen !== null && chosen < timeline.end - n) chosen = null; // it has left the view
  const centre = chosen === null ? busiest : chosen - (timeline.end - n);
  const from = Math.min(Math.max(0, centre - detailed / 2), n - detailed);
  text("busiest", `busiest: ${peak} requests in one, ${whole(peak * 1000)}/s; on average ${whole(total * 1000 / n)}/s`);
  for (const l of lanes) {
    const values = timeline[l.key], top = ceiling(Math.max(...values));
    drawBars(l.wide, values, l.colour, top, l.format, [from, from + detailed]);
    drawBars(l.near, values.slice(from, from + detailed), l.colour, top, l.format);
  }
}

for (const l of lanes) {
  l.wide.addEventListener("click", e => {
    const n = timeline.arrivals.length;
    chosen = timeline.end - n + Math.floor(e.offsetX * n / l.wide.clientWidth);
    drawMilliseconds();
  });
}
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").textContent = paused ? "Go on" : "Pause";
});
$("service").addEventListener("change", drawStats);
const redraw = () => { if (answers.length) drawStats(); drawMilliseconds(); };
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

every(1000, async () => {
  const answer = await ask("/stats"), before = answers[answers.length - 1];
  if (before && answer.uptime_seconds < before.uptime_seconds) answers.length = 0; // it was started anew
  answers.push(answer);
  if (answers.length > span + 1) answers.shift();
  drawStats();
});
every(250, async () => {
  timeline.take(await ask("/milliseconds?since=" + timeline.end));
  drawMilliseconds();
});
