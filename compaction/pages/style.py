"""The style sheet of the tuner's HTML pages: light and dark by the reader's setting, wide and narrow."""

from __future__ import annotations

STYLE = """
:root{--ink:#1b2430;--soft:#566273;--paper:#fbfaf7;--card:#fff;--rule:#dcd9d1;--c0:#2f6fb0;--c1:#c2571a;--c2:#5a8a3a;
--c3:#8a4f9e;--c4:#a3791c;--c5:#3f8f8f;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e8e6e1;--soft:#a4adb8;--paper:#14181d;--card:#1c2229;--rule:#343c46;
--c0:#7db4ea;--c1:#f0965c;--c2:#9ccb7b;--c3:#c99ada;--c4:#dcb65c;--c5:#7fcaca;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1160px;margin:0 auto;padding:2.2rem 1.1rem 4rem}
h1{font-size:clamp(1.6rem,4vw,2.3rem);line-height:1.15;margin:0 0 .6rem}
h2{margin:2.6rem 0 .5rem;font-size:1.35rem}h3{margin:1.6rem 0 .4rem;font-size:1.05rem}
p{max-width:46rem;margin:.4rem 0 1rem}.lead{font-size:1.1rem;color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.8rem;margin:1.4rem 0}
.tiles div{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:.9rem 1rem}
.tiles b{display:block;font-size:1.7rem;line-height:1.2}.tiles span{color:var(--soft);font-size:.88rem}
figure{margin:.8rem 0;background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:.7rem
.7rem .5rem}
figcaption{color:var(--soft);font-size:.88rem;text-align:center}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:.8rem}.grid figure{margin:0}
.grid svg text{font-size:21px}.grid svg .axis{display:none}
svg{display:block;width:100%;height:auto;overflow:visible}svg text{fill:var(--soft);font-size:11px}
svg .axis{font-size:12px}svg .name{fill:var(--ink)}svg .plot{fill:none;stroke:var(--rule)}
svg line.grid{stroke:var(--rule);stroke-width:.6}svg .line{fill:none;stroke-width:1.6;stroke-linejoin:round}
svg .dashed{stroke-dasharray:5 4}svg .bound{stroke:var(--bad);stroke-width:1.4;stroke-dasharray:7 4}
svg .line.s0{stroke:var(--c0)}svg .line.s1{stroke:var(--c1)}svg .line.s2{stroke:var(--c2)}svg
.line.s3{stroke:var(--c3)}
svg .line.s4{stroke:var(--c4)}svg .line.s5{stroke:var(--c5)}
svg .mark.s0{fill:var(--c0)}svg .mark.s1{fill:var(--c1)}svg .mark.s2{fill:var(--c2)}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;margin:.3rem 0;font-size:.88rem;color:var(--soft)}
.key{display:inline-block;width:1.1rem;height:3px;margin-right:.4rem;vertical-align:middle;background:var(--c0)}
.key.s1{background:var(--c1)}.key.s2{background:var(--c2)}.key.s3{background:var(--c3)}
svg text.on{fill:var(--card);font-size:11px;font-weight:600}
.number{display:inline-block;min-width:1.35rem;border-radius:.7rem;margin-right:.35rem;text-align:center;
font-size:.78rem;color:var(--card);background:var(--c0)}.number.s1{background:var(--c1)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:10px}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.45rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
td{white-space:nowrap}td.long{white-space:normal;min-width:15rem;overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600;line-height:1.25;vertical-align:bottom}tbody tr:last-child td{border-bottom:0}
@media(max-width:640px){th,td{padding:.35rem .45rem}table{font-size:.82rem}td{white-space:normal;min-width:4.2rem}
td.long{min-width:11rem}.tiles b{font-size:1.4rem}.tiles div{padding:.7rem .8rem}ul{padding-left:1.2rem}
svg text{font-size:17px}svg .axis{font-size:18px}svg text.on{font-size:12px}}
li{margin:.3rem 0;max-width:50rem}
"""
