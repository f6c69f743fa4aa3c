"""Style sheet of the charts, in the color variables of the page."""

STYLE = """
figure.chart { container-type: inline-size; margin: 0; }
svg.chart { display: block; width: 100%; max-width: 820px; height: auto; font-size: 12px; overflow: visible; }
svg.chart text { fill: var(--soft); }
svg.chart .label { fill: var(--ink); }
svg.chart .note, svg.chart .name { fill: var(--ink); }
svg.chart .note { paint-order: stroke; stroke: var(--ground); stroke-width: 3px; stroke-linejoin: round; }
svg.chart .middle { text-anchor: middle; }
svg.chart .end { text-anchor: end; }
svg.chart .grid { stroke: var(--line); }
svg.chart .axis { stroke: var(--soft); }
svg.chart .limit { stroke: var(--ink); stroke-dasharray: 6 4; stroke-width: 1.5; fill: none; }
svg.chart .curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
svg.chart .curve.s1 { stroke: var(--s1); fill: none; }
svg.chart .curve.s2 { stroke: var(--s2); fill: none; }
svg.chart .curve.s3 { stroke: var(--s3); fill: none; }
svg.chart .s1 { fill: var(--s1); }
svg.chart .s2 { fill: var(--s2); }
svg.chart .s3 { fill: var(--s3); }
svg.chart .s4 { fill: var(--s4); }
svg.chart .s5 { fill: var(--s5); }
svg.chart .s6 { fill: var(--s6); }
svg.chart .rest { fill: var(--line); }
svg.chart .warn { fill: var(--warn); }
svg.chart .ring { fill: var(--ground); stroke: var(--ink); stroke-width: 2; }
svg.chart .best { fill: var(--warn); stroke: var(--ground); stroke-width: 1.5; }
svg.chart .area { fill: var(--s1); fill-opacity: .25; }
svg.chart [data-node] { cursor: pointer; }
svg.chart [data-node]:hover { stroke: var(--ink); stroke-width: 1.5; }
svg.chart text[data-node]:hover { stroke: none; text-decoration: underline; }
@container (max-width: 640px) { svg.chart { font-size: 15px; } svg.chart .wide { display: none; } }
@container (max-width: 520px) { svg.chart { font-size: 17px; } }
@container (max-width: 430px) { svg.chart { font-size: 20px; } }
"""
"""Text is larger in narrow containers, because the image is scaled down to their width."""
