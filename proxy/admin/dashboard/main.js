// The page: asks, keeps two minutes of answers beside the sidecar's history, and draws.

const shortest = 120, longest = 600, recent = 120, kept = 4000, detailed = 100;
const everything = "all services";

const answers = []; // of /stats, up to recent + 1
let timeline = new Timeline(kept), history = null;
let paused = false, chosen = null; // where the reader clicked, as a millisecond
let heard = null;                  // when /stats was answered last, by performance.now()

async function ask(path) {
  // A path alone would inherit a name and password in the page's address, which fetch refuses.
  const response = await fetch(location.origin + path, { cache: "no-store", signal: AbortSignal.timeout(15000) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${(await response.text()).trim()}`);
  return response.json();
}

const wrong = new Map(); // what goes wrong now, by what was tried

// every calls f again and again, a pause after its end, and says what goes wrong, once each.
async function every(milliseconds, f) {
  for (;;) {
    if (!paused && !document.hidden) {
      wrong.delete(f);
      try {
        await f();
      } catch (e) {
        wrong.set(f, e instanceof TypeError ? `The sidecar can't be reached: ${e.message}` : e.message);
      }
      text("trouble", [...new Set(wrong.values())].join(" · "));
      $("trouble").hidden = !wrong.size;
    }
    await new Promise(done => setTimeout(done, milliseconds));
  }
}

// selected is the service that is chosen, or null for all.
const selected = () => $("service").value === everything || !$("service").value ? null : $("service").value;

function names(answer) {
  const all = Object.keys(answer.services).sort(), want = selected(), options = [everything, ...all];
  const have = [...$("service").options].map(o => o.value);
  if (have.join("\n") !== options.join("\n")) {
    $("service").replaceChildren(...options.map(o => new Option(o)));
    if (options.includes(want)) $("service").value = want;
    else if (want) chooseService(null); // a reload has removed it
  }
  return selected() ? [selected()] : all;
}

function chooseService(name) {
  $("service").value = name === null || name === selected() ? everything : name;
  onService();
}

function onService() {
  timeline = new Timeline(kept);
  history = chosen = null;
  askHistory().catch(() => {}); // and again soon
  redraw();
}

const query = () => selected() ? "service=" + encodeURIComponent(selected()) : "";

async function askHistory() {
  const of = query(), answer = await ask("/history?" + of);
  if (of === query()) history = answer;
}

// drawPhase says what the sidecar does, or for how long it has not responded.
function drawPhase() {
  const silent = heard === null ? null : (performance.now() - heard) / 1000;
  const now = answers[answers.length - 1], lost = !paused && silent !== null && silent > 5;
  document.body.classList.toggle("lost", lost);
  if (paused) setPhase("paused", "lost");
  else if (lost) setPhase(`no response for ${duration(silent)}`, "lost");
  else if (now) setPhase(now.phase, now.phase);
}

function setPhase(words, className) {
  text("phase", words);
  $("phase").className = "badge " + className;
}

function drawStats() {
  const now = answers[answers.length - 1], services = names(now), all = selected() === null;
  text("node", now.node);
  drawPhase();
  text("engine", now.engine);
  text("uptime", `${now.version} · up ${duration(now.uptime_seconds)} · ${now.connections} connections`);
  document.title = `Remora ${now.node}`;
  $("empty").hidden = !now.try;
  text("try", now.try || "");
  drawSources(now);
  if (answers.length < 2) return;

  const live = [];
  for (let i = 1; i < answers.length; i++) live.push(counted(answers[i - 1], answers[i], services, all));
  const last = live[live.length - 1], before = answers[answers.length - 2];
  const points = [...pointsOf(history, answers[0].uptime_seconds), ...live.map(d => pointOf(d, now.bounds_seconds))];
  const newest = points[points.length - 1];
  text("rate", whole(newest.requests));
  text("p50", time(newest.p50));
  text("p99", time(newest.p99));
  text("p999", time(newest.p999));
  text("failed", count(newest.failed));
  $("failed").className = newest.failed > 0 ? "bad" : "";
  text("hedged", percent(Math.max(0, last.sent - last.missed), last.requests));
  text("pending", whole(last.pending));
  text("queued", whole(last.queued));

  chart("rate", points, [["requests", "--blue", "requests"], ["failed", "--red", "failed"]], linear, count);
  chart("latency", points, [["P50", "--green", "p50"], ["P99", "--orange", "p99"], ["P99.9", "--red", "p999"]], logarithmic, time);
  chart("hedge", points, [["sent", "--violet", "hedges_sent"], ["won", "--green", "hedges_won"]], linear, count);
  drawErrors(before, now);
  drawGates(Object.assign(live.slice(-60), { now }), services);
  drawServices(before, now, selected(), chooseService);
  endpoints.draw(before, now, services);
  drawLoops(answers[Math.max(0, answers.length - 11)], now);
}

// spanOf is how much time the charts show, in seconds: whole minutes, as long as the points reach.
const spanOf = points => Math.min(longest, Math.max(shortest, 60 * Math.ceil((points[points.length - 1].at - points[0].at) / 60)));

function chart(id, points, series, scale, format) {
  const lines = series.map(([, colour, key]) => ({ colour, values: points.map(p => p[key]) }));
  drawLines($(id + "-chart"), lines, points.map(p => p.at), spanOf(points), scale, format);
  $(id + "-legend").replaceChildren(...series.flatMap(([name, colour, key]) => {
    const line = document.createElement("i");
    line.style.background = `var(${colour})`;
    return [line, `${name} ${format(points[points.length - 1][key])}`];
  }));
}

// lane adds a canvas with its name; it returns the canvas.
function lane(parent, name) {
  const canvas = element("canvas", { role: "img", ariaLabel: `${name} in each millisecond` });
  parent.append(element("div", { className: "lane" }, element("span", { textContent: name }), canvas));
  return canvas;
}

const lanes = [
  ["arrivals", "requests", "--blue", whole], ["bytes", "bytes", "--violet", bytes], ["worst", "worst latency", "--orange", us => time(us / 1e6)],
].map(([key, name, colour, format]) => ({
  key, colour, format, wide: lane($("overview"), name), near: lane($("detail"), name),
}));

// centre is the millisecond in the middle of the detail, as an index.
function centre() {
  const n = timeline.arrivals.length;
  if (chosen !== null && chosen < timeline.end - n) chosen = null; // it has left the view
  return chosen === null ? timeline.busiest() : chosen - (timeline.end - n);
}

function drawMilliseconds() {
  const n = timeline.arrivals.length, total = timeline.arrivals.reduce((a, k) => a + k, 0);
  const peak = timeline.arrivals[timeline.busiest()];
  const from = Math.min(Math.max(0, centre() - detailed / 2), n - detailed);
  text("busiest", total ? `busiest: ${peak} requests in one, ${whole(peak * 1000)}/s; on average ${whole(total * 1000 / n)}/s` : "no requests");
  for (const l of lanes) {
    const values = timeline[l.key], most = Math.max(...values), top = ceiling(most), format = most ? l.format : () => "–";
    drawBars(l.wide, values, l.colour, top, format, [from, from + detailed]);
    drawBars(l.near, values.slice(from, from + detailed), l.colour, top, format);
  }
}

for (const l of lanes) {
  l.wide.addEventListener("click", e => {
    const n = timeline.arrivals.length;
    chosen = timeline.end - n + Math.floor(e.offsetX * n / l.wide.clientWidth);
    drawMilliseconds();
  });
}
$("overview").tabIndex = 0;
$("overview").ariaLabel = "milliseconds of the last 4 seconds; arrows choose which are enlarged";
$("overview").setAttribute("role", "group");
$("overview").addEventListener("keydown", e => {
  const step = { ArrowLeft: -50, ArrowRight: 50 }[e.key], n = timeline.arrivals.length;
  if (e.key === "Escape") chosen = null;
  else if (step) chosen = timeline.end - n + Math.min(Math.max(centre() + step, 0), n - 1);
  else return;
  e.preventDefault();
  drawMilliseconds();
});
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").textContent = paused ? "Go on" : "Pause";
  heard = heard && performance.now();
  drawPhase();
});
const redraw = () => { if (answers.length) drawStats(); drawMilliseconds(); };
const endpoints = new Endpoints(redraw);
$("service").addEventListener("change", onService);
addEventListener("resize", redraw);
addEventListener("visibilitychange", () => { heard = heard && performance.now(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(drawPhase, 1000);
showTips();

every(1000, async () => {
  const answer = await ask("/stats"), before = answers[answers.length - 1];
  if (before && answer.uptime_seconds < before.uptime_seconds) { // it was started anew
    answers.length = 0;
    history = null;
  }
  heard = performance.now();
  answers.push(answer);
  if (answers.length > recent + 1) answers.shift();
  drawStats();
  if (!history) await askHistory();
});
every(30000, askHistory);
every(250, async () => {
  const mine = timeline;
  mine.take(await ask(`/milliseconds?since=${mine.end}&${query()}`));
  if (mine === timeline) drawMilliseconds();
});
