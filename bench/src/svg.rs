//! Drawings in SVG 1.1 that need nothing else.

use std::fmt::Write;

/// A drawing, of which each part lies over those before it. Lengths are in its own units, from its upper left corner.
pub(crate) struct Drawing(String);

impl Drawing {
    /// A white one.
    pub(crate) fn new(title: &str, width: f64, height: f64) -> Self {
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    /// A horizontal line.
    pub(crate) fn line(&mut self, (from, to): (f64, f64), y: f64, style: &str) {
        let _ = writeln!(self.0, "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" {style}/>");
    }

    /// A line from each point to the next.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], colour: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        let _ =
            writeln!(self.0, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    }

    /// A bar of this width and height with its upper left corner there; who points at it is told what it is.
    pub(crate) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str, what: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\">\
             <title>{what}</title></rect>"
        );
    }

    /// The square of a legend, and what it stands for.
    pub(crate) fn legend(&mut self, (x, y): (f64, f64), colour: &str, what: &str) {
        let top = y - 10.0;
        let _ = writeln!(self.0, "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        self.text((x + 17.0, y), "start", what);
    }

    /// Text whose start, middle or end is there.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: &str, what: &str) {
        let _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>");
    }

    /// The file's content.
    pub(crate) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}
