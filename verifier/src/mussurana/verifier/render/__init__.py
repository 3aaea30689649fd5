"""Showing results to people: text, JSON, DOT, SVG and a self-contained HTML page, all from the same `Result`."""
