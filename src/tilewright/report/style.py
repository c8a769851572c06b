"""The style of every page: one sheet, light and dark."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --panel: #f5f7f8; --line: #d9dfe3; --ink: #1b2327; --faint: #55636b;
  --accent: #0b6e69; --s1: #0f857e; --s2: #d97a24; --s3: #7a68c9; --s4: #4b7fb5;
  --s5: #b5527a; --s6: #8a9399;
  --key: #8a2f8f; --num: #9a4a00; --str: #2d6a2d; --com: #5d6d75; --fun: #1c5fa8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #12181b; --panel: #1b2327; --line: #34424a; --ink: #e4eaed; --faint: #9fb0b9;
    --accent: #58c9bf; --s1: #3dbdb2; --s2: #e8954a; --s3: #a596ea; --s4: #7fb2e5;
    --s5: #e08fb0; --s6: #84919a;
    --key: #d59be0; --num: #eab27a; --str: #9ccf92; --com: #8fa1aa; --fun: #8ebdf0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem clamp(1rem, 4vw, 3rem) 4rem; max-width: 72rem;
  background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0.5rem 0 0.5rem; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 0.75rem; }
h3 { font-size: 1.05rem; margin: 1.75rem 0 0.5rem; }
p { max-width: 46rem; margin: 0.5rem 0 1rem; }
header > p { color: var(--faint); font-size: 1.05rem; }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin-top: 1rem; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); color: var(--faint); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.95rem; }
caption { text-align: left; color: var(--faint); padding-bottom: 0.5rem; }
th, td { padding: 0.4rem 0.8rem 0.4rem 0; text-align: left; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
thead th {
  border-bottom: 2px solid var(--line); color: var(--faint); font-weight: 600;
  white-space: normal; vertical-align: bottom;
}
tbody th { font-weight: 500; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
.wrap { white-space: normal; min-width: 12rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.cards { display: flex; flex-wrap: wrap; gap: 0.75rem; margin: 1.5rem 0; }
.card {
  flex: 1 1 11rem; background: var(--panel); border-radius: 8px; padding: 0.9rem 1.1rem;
  display: flex; flex-direction: column;
}
.card dd {
  margin: 0; font-size: 1.6rem; font-weight: 650; color: var(--accent); white-space: nowrap;
}
.card dt { color: var(--faint); font-size: 0.92rem; line-height: 1.35; }
.facts { margin: 1rem 0; font-size: 0.95rem; }
.facts > div { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: 0.2rem 0; }
.facts dt { flex: 0 0 9.5rem; color: var(--faint); }
.facts dd { flex: 1 1 14rem; margin: 0; overflow-wrap: anywhere; }
.columns {
  display: grid; gap: 0 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
}
.columns > div { min-width: 0; }
figure { margin: 1rem 0 1.5rem; }
figcaption { color: var(--faint); font-size: 0.92rem; margin-top: 0.4rem; }
details { border: 1px solid var(--line); border-radius: 8px; margin: 0.6rem 0; padding: 0 1rem; }
details > details { margin: 0.6rem 0; }
summary { cursor: pointer; padding: 0.6rem 0; font-weight: 500; }
details[open] { padding-bottom: 0.6rem; }
pre {
  background: var(--panel); border-radius: 6px; padding: 0.9rem 1rem; margin: 0.5rem 0;
  overflow: auto; max-height: 34rem; font-size: 0.82rem; line-height: 1.5; tab-size: 4;
}
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
p code, li code, dd code {
  background: var(--panel); border-radius: 4px; padding: 0.1em 0.35em; font-size: 0.9em;
}
.k, .kn, .kr, .ow { color: var(--key); }
.kc, .kt, .kd { color: var(--fun); }
.mi, .mf, .mh, .m, .il { color: var(--num); }
.s, .s1, .s2, .sd { color: var(--str); }
.c, .c1, .cm, .cp, .cpf { color: var(--com); }
.nf, .nb { color: var(--fun); }
.chart { display: block; overflow: visible; }
.chart text { fill: var(--ink); font-size: 13px; }
.chart .heading { font-size: 14px; font-weight: 600; }
.chart .value { font-weight: 600; font-variant-numeric: tabular-nums; }
.chart .note, .chart .axis, .chart .mark { fill: var(--faint); }
.chart .axis, .chart .mark { font-size: 12px; }
.chart .small { font-size: 11.5px; }
.chart .end { text-anchor: end; }
.chart .middle { text-anchor: middle; }
.grid { stroke: var(--line); }
.nothing { fill: var(--panel); }
.faint { opacity: 0.55; stroke-dasharray: 5 4; }
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; font-size: 0.92rem; }
.legend i {
  display: inline-block; width: 0.7rem; height: 0.7rem; border-radius: 50%; margin-right: 0.4rem;
}
.key-1 { background: var(--s1); } .key-2 { background: var(--s2); }
.key-3 { background: var(--s3); } .key-4 { background: var(--s4); }
.key-5 { background: var(--s5); } .key-6 { background: var(--s6); }
.roof { stroke: var(--faint); stroke-width: 2; }
.fill-1, .dot-1 { fill: var(--s1); } .fill-2, .dot-2 { fill: var(--s2); }
.fill-3, .dot-3 { fill: var(--s3); } .fill-4, .dot-4 { fill: var(--s4); }
.fill-5, .dot-5 { fill: var(--s5); } .fill-6, .dot-6 { fill: var(--s6); }
.line-1 { stroke: var(--s1); } .line-2 { stroke: var(--s2); } .line-3 { stroke: var(--s3); }
.line-4 { stroke: var(--s4); } .line-5 { stroke: var(--s5); } .line-6 { stroke: var(--s6); }
[class^=line-] { stroke-width: 2; stroke-linecap: round; }
@media (max-width: 44rem) {
  .chart .crowded { display: none; }
}
@media (max-width: 30rem) {
  .chart .label { font-size: 11px; }
}
@media print {
  body { max-width: none; } pre { max-height: none; white-space: pre-wrap; } nav { display: none; }
}
"""
