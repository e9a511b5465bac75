"use strict";

// Whatever comes from the node is put in place as text, never as markup.

const $ = (id) => document.getElementById(id);
const rowHeight = 34; // pixels, as in the style
const spare = 12; // rows that are asked for beyond what is visible, on either side
const every = 1000; // milliseconds between two looks
const sparkLength = 60; // looks
const backendsDrawn = 18;

// What is looked at. The address of the page has it, too, so that it can be kept and sent.
const usual = { service: "", search: "", sort: "state", descending: false, tab: "traffic", unit: "rate" };
const asked = { ...usual };
let page = { total: 0, matched: 0, from: 0, rows: [] };
let shown = null; // the chosen Service port, as read last
let picked = false; // somebody has chosen one
const rates = [];

// --- small things

function make(tag, text, cls) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
}

function draw(tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

function say(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

const grouped = new Intl.NumberFormat("en-US");

// count is a number as people read it: whole up to 99,999, then in thousands.
function count(n) {
  if (n < 1e5) return grouped.format(n);
  if (n < 1e6) return Math.round(n / 1e3) + "k";
  return (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + "M";
}

// rate is how many in a second; a dash stands for what is not known yet.
function rate(n) {
  if (n === undefined || n === null) return "–";
  if (n === 0) return "0";
  return n < 9.95 ? Math.max(n, 0.1).toFixed(1) : count(Math.round(n));
}

function duration(ns) {
  if (!ns) return "–";
  if (ns < 1e6) return Math.round(ns / 1e3) + " µs";
  return ns < 1e9 ? (ns / 1e6).toFixed(ns < 1e7 ? 1 : 0) + " ms" : (ns / 1e9).toFixed(1) + " s";
}

function cut(text, most) {
  return text.length <= most ? text : text.slice(0, Math.ceil(most / 2) - 1) + "…" + text.slice(text.length - Math.floor(most / 2) + 1);
}

async function get(path, query) {
  const answer = await fetch("api/" + path + "?" + new URLSearchParams(query), { signal: AbortSignal.timeout(15000) });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error), { status: answer.status });
  return body;
}

// --- the address of the page

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  Object.assign(asked, usual);
  for (const key of ["service", "search", "sort", "tab", "unit"]) if (given.has(key)) asked[key] = given.get(key);
  asked.descending = given.get("descending") === "true";
  if (!document.querySelector(`[data-sort="${CSS.escape(asked.sort)}"]`)) asked.sort = "state";
  if (!document.querySelector(`[data-tab="${CSS.escape(asked.tab)}"]`)) asked.tab = "traffic";
  if (asked.unit !== "open") asked.unit = "rate";
  picked = asked.service !== "";
  $("search").value = asked.search;
}

// openAddress shows what another address of the page has, and nothing of the one before.
async function openAddress() {
  readAddress();
  shown = null;
  $("rows").scrollTop = 0;
  $("told").replaceChildren();
  showTab();
  if (picked && asked.tab === "story") explain();
  await look(lookAtList);
  await look(lookAtService);
}

function writeAddress() {
  const now = new URLSearchParams();
  for (const [k, v] of Object.entries(asked)) if (v && !(k === "service" && !picked)) now.set(k, v);
  history.replaceState(null, "", "#" + now);
}

// --- the node

function showNode(n) {
  say("node", n.node);
  document.title = n.node ? n.node + " – Headgate" : "Headgate";
  const well = n.degraded.length === 0;
  $("verdict").hidden = false;
  $("verdict").classList.toggle("bad", !well);
  say("verdict", well ? "Well" : "Degraded: " + n.degraded.join(", "));
  if (!$("status").hidden) $("status").replaceChildren(story(n.text));
  say("rate", rate(n.perSecond));
  say("flight", count(n.inFlight));
  say("refused", rate(n.refusedPerSecond));
  say("failed", rate(n.failedPerSecond));
  const avoided = n.avoided.filter((a) => !a.oneClient).length;
  say("avoided", count(avoided));
  say("backends", "of " + count(n.backends));
  tone("refused", n.refusedPerSecond > 0 && "bad");
  tone("failed", n.failedPerSecond > 0 && "bad");
  tone("avoided", avoided > 0 && "warn");
  if (n.perSecond !== undefined) {
    rates.push(n.perSecond);
    rates.splice(0, rates.length - sparkLength);
    showSpark();
  }
  showEvents(n.events);
}

function tone(id, cls) {
  $(id).closest(".tile").className = "tile" + (cls ? " " + cls : "");
}

function showSpark() {
  const most = Math.max(1, ...rates) * 1.1;
  const at = (i) => `${(120 - (rates.length - 1 - i) * (120 / (sparkLength - 1))).toFixed(1)},${(30 - (rates[i] / most) * 28).toFixed(1)}`;
  const line = rates.map((_, i) => at(i)).join("L");
  const first = at(0).split(",")[0];
  $("spark").replaceChildren(draw("path", { class: "area", d: `M${first},30L${line}L120,30Z` }), draw("path", { d: "M" + line }));
}

let lastEvent = -1;

function showEvents(events) {
  const last = events.length ? events[0].id : 0;
  if (last === lastEvent) return;
  lastEvent = last;
  $("quiet").hidden = events.length > 0;
  $("events").hidden = events.length === 0;
  $("events").replaceChildren(...events.map((e) => {
    const li = make("li", undefined, e.ended ? "over" : e.oneClient ? "one" : "");
    const at = new Date(e.at);
    const time = make("time", at.toLocaleTimeString([], { hour12: false }));
    time.dateTime = e.at;
    const who = make("div", e.pod || e.backend, "who");
    for (const one of [e.pod && e.backend, ...e.services, e.node, e.zone].filter(Boolean)) who.append(" · ", make("span", one));
    who.title = who.textContent;
    let what = e.oneClient ? "avoided by one" : "ejected";
    if (e.ended) what = "no longer avoided";
    const verb = make("span", what, "what");
    verb.title = e.ended ? "It takes connections again, or left its Services" : e.oneClient ? "One client avoids it" : "All clients avoid it";
    li.append(time, verb, who);
    return li;
  }));
}

// --- the list, of which only what is visible is asked for and drawn

const pool = [];

function visible() {
  const rows = $("rows");
  const first = Math.max(0, Math.floor(rows.scrollTop / rowHeight) - spare);
  return { from: first, count: Math.min(200, Math.ceil(rows.clientHeight / rowHeight) + 2 * spare) };
}

async function lookAtList() {
  const q = { search: asked.search, sort: asked.sort, descending: asked.descending, ...visible() };
  const answer = await get("services", q);
  if (q.search !== asked.search || q.sort !== asked.sort || q.descending !== asked.descending) return;
  page = answer;
  const first = !asked.service && page.rows.length > 0;
  if (first) asked.service = page.rows[0].name;
  showList();
  if (first && asked.tab === "story") explain();
}

function showList() {
  say("matched", page.matched === page.total ? count(page.total) : `${count(page.matched)} of ${count(page.total)}`);
  const height = page.matched * rowHeight + "px";
  if ($("space").style.height !== height) $("space").style.height = height;
  $("none").hidden = page.matched > 0;
  $("rows").hidden = page.matched === 0;
  say("none", page.total === 0 ? "No Service is in force on this node." : "No Service has this in its name or in an address.");
  while (pool.length < page.rows.length) {
    const row = make("div", undefined, "row");
    row.setAttribute("role", "option");
    for (let i = 0; i < 6; i++) row.append(make(i === 0 ? "span" : "div", "", i > 1 ? "n" : ""));
    row.addEventListener("click", () => choose(row.dataset.name));
    $("rows").append(row);
    pool.push(row);
  }
  pool.forEach((row, i) => showRow(row, page.rows[i], page.from + i));
  document.querySelectorAll("[data-sort]").forEach((b) => {
    if (b.dataset.sort === asked.sort) b.setAttribute("aria-sort", asked.descending ? "descending" : "ascending");
    else b.removeAttribute("aria-sort");
  });
}

// flights is a number at most where other Services share backends, which is what the kernel counts by.
const flights = (s) => (s.inFlightShared ? "≤" : "") + count(s.inFlight);

const stateWords = { refusing: "refusing", avoided: "avoiding", empty: "none ready", well: "well" };

function showRow(row, s, place) {
  row.hidden = !s;
  if (!s) return;
  row.style.top = place * rowHeight + "px";
  row.dataset.name = s.name;
  row.title = s.name;
  row.classList.toggle("chosen", s.name === asked.service);
  row.setAttribute("aria-selected", s.name === asked.service);
  const [state, name, ready, perSecond, flight, refused] = row.children;
  state.className = "dot " + s.state;
  state.textContent = stateWords[s.state];
  if (name.dataset.of !== s.name) {
    name.dataset.of = s.name;
    name.replaceChildren(make("i", s.namespace + "/"), s.service, make("i", " " + s.port));
  }
  cell(ready, `${s.ready === undefined ? "–" : count(s.ready)}/${count(s.backends)}`, s.ready < s.backends || s.avoided > 0 ? "warn" : s.backends === 0 ? "zero" : "");
  cell(perSecond, rate(s.perSecond), s.perSecond ? "" : "zero");
  cell(flight, flights(s), s.inFlight ? "" : "zero");
  cell(refused, count(s.refused), s.refusedPerSecond > 0 ? "bad" : s.refused ? "" : "zero");
}

function cell(e, text, cls) {
  if (e.textContent !== text) e.textContent = text;
  e.className = "n " + cls;
}

function choose(name) {
  asked.service = name;
  picked = true;
  shown = null;
  writeAddress();
  showList();
  look(lookAtService);
  if (asked.tab === "story") explain();
}

// --- the chosen Service

async function lookAtService() {
  const name = asked.service;
  if (!name) return showNothing("Choose a Service to see its connections.");
  try {
    const s = await get("service", { name });
    if (name === asked.service) showService(s);
  } catch (e) {
    if (e.status !== 404) throw e;
    showNothing(name + ": " + e.message);
    if (!picked) asked.service = "";
  }
}

function showNothing(text) {
  shown = null;
  $("chosen").hidden = true;
  $("choose").hidden = false;
  say("choose", text);
}

function showService(s) {
  shown = s;
  $("chosen").hidden = false;
  $("choose").hidden = true;
  say("name", s.name);
  $("state").className = "pill " + s.state;
  say("state", { refusing: "refuses clients", avoided: "some backends avoided", empty: "no backend is ready", well: "well" }[s.state]);
  showFacts(s);
  if (asked.tab === "traffic") showDiagram(s);
  if (asked.tab === "backends") showBackends(s);
}

function showFacts(s) {
  const facts = [];
  const fact = (number, words) => facts.push(make("b", number), " " + words + " · ");
  fact(rate(s.perSecond), "new/s");
  fact(flights(s), "in flight");
  fact(count(s.connections), "connections");
  fact(count(s.refused), "refused");
  facts.push(s.algorithm + " · " + s.frontends.slice(0, 4).join(", ") + (s.frontends.length > 4 ? ` and ${s.frontends.length - 4} more` : ""));
  $("facts").replaceChildren(...facts);
}

function showTab() {
  document.querySelectorAll("[data-tab]").forEach((b) => b.setAttribute("aria-selected", b.dataset.tab === asked.tab));
  document.querySelectorAll("[data-unit]").forEach((b) => b.setAttribute("aria-pressed", b.dataset.unit === asked.unit));
  $("traffic").hidden = asked.tab !== "traffic";
  $("members").hidden = asked.tab !== "backends";
  $("story").hidden = asked.tab !== "story";
  $("unit").style.visibility = asked.tab === "traffic" ? "" : "hidden";
  if (shown) showService(shown);
}

function showBackends(s) {
  const name = (b) => {
    const td = make("td", b.pod || b.backend);
    if (b.pod) td.append(make("small", b.backend));
    return td;
  };
  $("table").replaceChildren(...s.backends.map((b) => {
    const tr = make("tr");
    tr.append(name(b), make("td", b.state), make("td", b.health, b.well ? "health" : "health hurt"), make("td", b.node || "–"), make("td", b.zone || "–"),
      make("td", rate(b.perSecond), "n"), make("td", count(b.inFlight), "n"), make("td", (b.responseAtLeast ? "≥" : "") + duration(b.responseNs), "n"));
    return tr;
  }));
}

// --- the diagram: clients, zones, backends, and what goes from one to the next

const letter = 7; // pixels

// stacked says whether figures stand below names, since there is no room beside them.
const stacked = (width) => width < 480;

// most is how much of the width names may take on either side.
const most = (width) => width * (stacked(width) ? 0.36 : 0.3);

function showDiagram(s) {
  const value = (l) => (asked.unit === "open" ? l.open : l.perSecond);
  const text = (n) => (asked.unit === "open" ? count(n) : rate(n));
  const g = graph(s, value);
  const width = Math.max(280, $("traffic").clientWidth - 28);
  const rows = Math.max(g.columns[0].length, g.columns[1].length, g.columns[2].length, 1);
  const room = $("traffic").clientHeight - 56;
  const height = Math.max(150, rows * (stacked(width) ? 40 : 28) + 44, Math.min(room, rows * 60 + 44));
  place(g, width, height);
  const svg = $("diagram");
  const held = svg.dataset.held;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const [left, middle, right] = g.at;
  svg.replaceChildren(
    draw("text", { class: "title", x: left + 10, y: 11, "text-anchor": "end" }, "Clients"),
    draw("text", { class: "title", x: middle + 5, y: 11, "text-anchor": "middle" }, "Zones"),
    draw("text", { class: "title", x: right, y: 11 }, "Backends"),
    ...g.links.map(drawLink),
    ...g.columns.flatMap((column, i) => column.flatMap((n) => drawNode(n, i, [left, middle, right][i], width, text))));
  hold(held);
  say("note", noteOf(s, g));
}

function noteOf(s, g) {
  const notes = [];
  if (s.unlisted) notes.push("Sockets of this node cannot be listed: " + s.unlisted + ".");
  if (g.total === 0) notes.push(asked.unit === "open" ? "Nothing is open." : "No connection has begun in the last second.");
  else if (asked.unit === "rate") notes.push("Backends count what begins. Whose it is, is known of connections that last until the next look, a second; the others are short.");
  if (s.estimated && asked.unit === "rate") notes.push("Backends have other Services, too: their share in this one is estimated.");
  return notes.join(" ");
}

// graph returns three columns of nodes, and the links between them.
function graph(s, value) {
  const backends = s.backends.map((b, i) => ({ i, b, label: b.pod ? b.pod.split("/").pop() : b.backend, full: b.pod ? `${b.pod} · ${b.backend}` : b.backend, zone: b.zone || "", hurt: !b.well, value: 0 }));
  for (const l of s.links) backends[l.backend].value += value(l);
  const drawn = [...backends].sort((a, b) => b.hurt - a.hurt || b.value - a.value || a.i - b.i).slice(0, backends.length > backendsDrawn ? backendsDrawn - 1 : backendsDrawn);
  const rest = backends.length - drawn.length;
  const others = rest > 0 ? { label: `${count(rest)} more backends`, full: "", zone: "several", value: 0, more: true } : null;
  const columnOf = new Map(drawn.map((b) => [b.i, b]));
  const clients = s.clients.map((c) => ({ ...clientLabel(c), value: 0 }));
  const zones = new Map();
  const links = new Map();
  const zoneOf = (b) => {
    if (!zones.has(b.zone)) zones.set(b.zone, { label: b.zone || "zone unknown", full: b.zone || "No agent, or no EndpointSlice, says in which zone these are", zone: b.zone, value: 0 });
    return zones.get(b.zone);
  };
  const connect = (from, to, v, hurt) => {
    const known = links.get(from)?.get(to);
    if (known) return void (known.value += v);
    if (!links.has(from)) links.set(from, new Map());
    links.get(from).set(to, { from, to, value: v, hurt });
  };
  for (const b of drawn) connect(zoneOf(b), b, 0, b.hurt);
  if (others) connect(zoneOf(others), others, 0);
  let total = 0;
  for (const l of s.links) {
    const v = value(l);
    const b = columnOf.get(l.backend) || others;
    if (b === others) others.value += v;
    total += v;
    const zone = zoneOf(b);
    zone.value += v;
    clients[l.client].value += v;
    if (v > 0) connect(clients[l.client], zone, v);
    connect(zone, b, v, b.hurt);
  }
  const sorted = [...zones.values()].sort((a, b) => (a.zone < b.zone ? -1 : 1));
  const colours = sorted.filter((z) => z.zone && z.zone !== "several");
  const order = (b) => sorted.findIndex((z) => z.zone === b.zone);
  const shownBackends = [...drawn].sort((a, b) => order(a) - order(b) || a.i - b.i);
  if (others) shownBackends.push(others), sorted.push(...sorted.splice(order(others), 1));
  for (const n of [...sorted, ...shownBackends]) {
    const i = colours.findIndex((z) => z.zone === n.zone);
    n.colour = i < 0 ? "zx" : "z" + (i % 6);
  }
  const busy = clients.filter((c) => c.value > 0);
  [busy, sorted, shownBackends].forEach((c, i) => c.forEach((n, j) => (n.key = `${i}.${n.full || n.label}.${j}`)));
  return { columns: [busy, sorted, shownBackends], links: [...links.values()].flatMap((m) => [...m.values()]), total };
}

function clientLabel(c) {
  if (c.more) return { label: `${count(c.more + 1)} more clients`, full: "" };
  if (!c.address) return { label: "short connections", full: "These began and ended between two looks: nobody saw whose they are" };
  const name = c.pod ? c.pod.split("/").pop() : c.address;
  const full = [c.pod, c.address, c.zone && "zone " + c.zone, c.local ? "on this node" : ""].filter(Boolean).join(" · ");
  return { label: name, full, note: c.local ? "this node" : c.zone };
}

// place gives each node its place, and each link its two ends: all to one scale.
function place(g, width, height) {
  const top = stacked(width) ? 30 : 22, gap = stacked(width) ? 26 : 14, least = 4;
  const inner = height - top - 18; // below the last zone stands its name
  const room = (c) => inner - gap * Math.max(0, c.length - 1);
  const scale = g.total > 0 ? Math.min(...g.columns.filter((c) => c.length).map((c) => Math.max(10, room(c) - least * c.length) / g.total)) : 0;
  // As much at the sides as the names take, with room for figures.
  const side = (c) => Math.min(Math.max(64, ...c.map((n) => n.label.length * letter)) + (stacked(width) ? 20 : 48), most(width));
  const [left, right] = [side(g.columns[0]), side(g.columns[2])];
  g.at = [left, (left + width - 10 - right) / 2, width - 10 - right];
  for (const column of g.columns) {
    for (const n of column) n.h = Math.max(least, n.value * scale);
    const used = column.reduce((sum, n) => sum + n.h, 0);
    const space = column.length > 1 ? Math.min((inner - used) / (column.length - 1), column === g.columns[1] ? 60 : 40) : 0;
    let y = top + Math.max(0, (inner - used - space * (column.length - 1)) / 2);
    for (const n of column) {
      n.y = y;
      n.in = n.out = y;
      y += n.h + space;
    }
  }
  const index = new Map(g.columns.flatMap((c) => c.map((n, i) => [n, i])));
  g.links.sort((a, b) => index.get(a.from) - index.get(b.from) || index.get(a.to) - index.get(b.to));
  for (const l of g.links) {
    l.w = l.value * scale;
    l.x0 = (g.columns[0].includes(l.from) ? g.at[0] : g.at[1]) + 10;
    l.x1 = g.columns[2].includes(l.to) ? g.at[2] : g.at[1];
    const thin = l.w < 1;
    l.y0 = thin ? l.from.out + Math.min(l.from.h, 4) / 2 : l.from.out + l.w / 2;
    l.y1 = thin ? l.to.in + Math.min(l.to.h, 4) / 2 : l.to.in + l.w / 2;
    l.from.out += l.w;
    l.to.in += l.w;
  }
}

function drawLink(l) {
  const half = (l.x0 + l.x1) / 2;
  const cls = ["link", l.to.colour, l.value === 0 && "idle", l.hurt && "hurt"].filter(Boolean).join(" ");
  const p = draw("path", { class: cls, d: `M${l.x0},${l.y0}C${half},${l.y0} ${half},${l.y1} ${l.x1},${l.y1}`, "stroke-width": Math.max(1, l.w) });
  p.dataset.ends = JSON.stringify([l.from.key, l.to.key]);
  p.append(draw("title", {}, `${l.from.label} → ${l.to.label}: ${asked.unit === "open" ? count(l.value) + " open" : rate(l.value) + " new/s"}`));
  return p;
}

function drawNode(n, column, x, width, text) {
  const below = column !== 1 && stacked(width);
  const letters = Math.max(8, Math.floor((most(width) - (below ? 12 : 48)) / letter));
  const box = draw("rect", { class: ["box", column === 0 ? "client" : n.colour, n.hurt && "hurt"].filter(Boolean).join(" "), x, y: n.y, width: 10, height: n.h, rx: 2 });
  const group = draw("g", {});
  group.dataset.key = n.key;
  group.append(box, draw("title", {}, `${n.full || n.label}${n.hurt ? " · " + n.b.health : ""}: ${text(n.value)} ${asked.unit === "open" ? "open" : "new/s"}`));
  const y = n.y + n.h / 2 + (below ? -2 : 4);
  const label = [
    { x: x - 8, y, "text-anchor": "end" },
    { x: x + 5, y: n.y + n.h + 13, "text-anchor": "middle", class: "small" },
    { x: x + 18, y, class: n.hurt ? "hurt" : "" },
  ][column];
  const t = draw("text", label, cut(n.label, column === 1 ? 18 : letters));
  t.append(draw("tspan", below ? { x: label.x, dy: 13 } : { dx: 6 }, text(n.value)));
  group.append(t);
  group.addEventListener("pointerenter", () => hold(n.key));
  group.addEventListener("pointerleave", () => hold(""));
  return [group];
}

// hold brings out what begins or ends at a node.
function hold(key) {
  const svg = $("diagram");
  svg.dataset.held = key || "";
  let any = false;
  svg.querySelectorAll(".link").forEach((l) => {
    const on = Boolean(key) && JSON.parse(l.dataset.ends).includes(key);
    l.classList.toggle("on", on);
    any ||= on;
  });
  svg.classList.toggle("focus", any);
}

// --- the story

// story returns lines as they are printed for people.
function story(lines) {
  const dl = make("dl");
  for (const [about, ...says] of lines) {
    dl.append(make("dt", about), make("dd", says.join(" "), about === "" ? "more" : about));
  }
  return dl;
}

async function explain() {
  const name = asked.service;
  if (!name) return;
  try {
    const told = await get("explain", { name, from: $("from").value.trim() });
    if (name !== asked.service) return;
    $("told").replaceChildren(...(told.length ? told.map(story) : [make("p", "It has no address that such a client could ask.", "empty")]));
  } catch (e) {
    $("told").replaceChildren(make("p", e.message, "wrong"));
  }
}

// --- looking again and again

let failing = "";

// look looks, and says whether that works.
async function look(...what) {
  try {
    await Promise.all(what.map((one) => one()));
    failing = "";
  } catch (e) {
    failing = e.status ? e.message : "No answer from headgate ui: it has ended, or the way to it is closed.";
  }
  $("trouble").hidden = failing === "";
  say("trouble", failing);
  $("live").className = "live " + (failing ? "off" : "on");
  say("live", failing ? "not live" : "live");
}

async function lookForever() {
  for (;;) {
    const next = new Promise((done) => setTimeout(done, document.hidden ? 5 * every : every));
    const node = async () => showNode(await get("node", {}));
    if (document.hidden) await look(node);
    else {
      await look(node, lookAtList);
      if (!failing) await look(lookAtService);
    }
    await next;
  }
}

function ask(change) {
  Object.assign(asked, change);
  writeAddress();
  look(lookAtList);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function begin() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = localStorage.getItem("theme");
  setTheme(chosen || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => localStorage.getItem("theme") || setTheme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", now);
    setTheme(now);
  });
  readAddress();
  $("search").addEventListener("input", () => {
    $("rows").scrollTop = 0;
    ask({ search: $("search").value.trim() });
  });
  document.querySelectorAll("[data-sort]").forEach((b) => b.addEventListener("click", () => {
    const falls = ["connections", "in-flight", "refused", "backends"].includes(b.dataset.sort);
    $("rows").scrollTop = 0;
    ask({ sort: b.dataset.sort, descending: b.dataset.sort === asked.sort ? !asked.descending : falls });
  }));
  document.querySelectorAll("[data-tab]").forEach((b) => b.addEventListener("click", () => {
    asked.tab = b.dataset.tab;
    writeAddress();
    showTab();
    if (asked.tab === "story") explain();
  }));
  document.querySelectorAll("[data-unit]").forEach((b) => b.addEventListener("click", () => {
    asked.unit = b.dataset.unit;
    writeAddress();
    showTab();
  }));
  let scrolled = 0;
  $("rows").addEventListener("scroll", () => {
    clearTimeout(scrolled);
    scrolled = setTimeout(() => look(lookAtList), 30);
  });
  $("rows").addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    const next = step && page.rows[page.rows.findIndex((s) => s.name === asked.service) + step];
    if (!next) return;
    e.preventDefault();
    choose(next.name);
    pool.find((row) => row.dataset.name === next.name)?.scrollIntoView({ block: "nearest" });
  });
  $("ask").addEventListener("submit", (e) => {
    e.preventDefault();
    explain();
  });
  $("verdict").addEventListener("click", async () => {
    $("status").hidden = !$("status").hidden;
    $("verdict").setAttribute("aria-expanded", !$("status").hidden);
    look(async () => showNode(await get("node", {})));
  });
  addEventListener("resize", () => shown && asked.tab === "traffic" && showDiagram(shown));
  addEventListener("hashchange", openAddress);
  showTab();
  lookForever();
  if (asked.tab === "story") explain();
}

begin();
