//! Numbers by the size of blocks, as curves. Each horizontal line stands for twice the one below, so that equal ratios are equal
//! distances.

use crate::svg::Drawing;

/// Of a panel, two of which stand beside each other.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 210.0;
/// What its field is from its edges.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 24.0;
const LEGEND: f64 = 30.0;
const COLUMNS: usize = 2;
/// Of each contender.
const COLOURS: [&str; 4] = ["#1f5fa8", "#2e8b57", "#c98a1b", "#8c8c8c"];

/// A field with curves.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) curves: Vec<Curve>,
}

/// A contender's.
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    /// For each size of blocks; None when it was not measured.
    pub(crate) values: Vec<Option<f64>>,
}

/// Draws the panels for these sizes, two beside each other.
pub(crate) fn draw(title: &str, sizes: &[String], panels: &[Panel]) -> String {
    let lines = panels.len().div_ceil(COLUMNS) as f64;
    let mut drawing = Drawing::new(title, WIDTH * COLUMNS as f64, HEIGHT * lines + LEGEND);
    for (number, panel) in panels.iter().enumerate() {
        let corner = ((number % COLUMNS) as f64 * WIDTH, (number / COLUMNS) as f64 * HEIGHT);
        draw_panel(&mut drawing, sizes, panel, corner);
    }
    if let Some(panel) = panels.first() {
        for (number, (curve, colour)) in panel.curves.iter().zip(COLOURS).enumerate() {
            drawing.legend((LEFT + number as f64 * 150.0, HEIGHT * lines + 16.0), colour, curve.name);
        }
    }
    drawing.finish()
}

fn draw_panel(drawing: &mut Drawing, sizes: &[String], panel: &Panel, (x, y): (f64, f64)) {
    let values = || panel.curves.iter().flat_map(|curve| curve.values.iter().flatten().copied());
    let Some((low, high)) = values().min_by(f64::total_cmp).zip(values().max_by(f64::total_cmp)) else { return };
    let low = low.max(f64::MIN_POSITIVE).log2().floor() as i32;
    let high = (high.max(f64::MIN_POSITIVE).log2().ceil() as i32).max(low + 1);
    let (left, right, bottom) = (x + LEFT, x + WIDTH - RIGHT, y + HEIGHT - BOTTOM);
    let height = |value: f64| bottom - (bottom - y - TOP) * (value.log2() - f64::from(low)) / f64::from(high - low);
    drawing.text((left, y + 14.0), "start", &panel.title);
    for value in (low..=high).map(|power| 2f64.powi(power)) {
        drawing.line((left, right), height(value), "stroke=\"#ddd\"");
        drawing.text((left - 5.0, height(value) + 4.0), "end", &value.to_string());
    }
    let place = |number: usize| left + (right - left) * (number as f64 + 0.5) / sizes.len() as f64;
    for (number, size) in sizes.iter().enumerate() {
        drawing.text((place(number), bottom + 16.0), "middle", size);
    }
    for (curve, colour) in panel.curves.iter().zip(COLOURS) {
        let values = curve.values.iter().enumerate();
        let points: Vec<(f64, f64)> =
            values.filter_map(|(number, value)| Some((place(number), height((*value)?)))).collect();
        drawing.curve(&points, colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_through_what_was_measured() {
        let sizes: Vec<String> = (0..11).map(|power| format!("{}K", 1 << power)).collect();
        let mut values = vec![None; sizes.len()];
        (values[0], values[1], values[10]) = (Some(256.0), Some(1024.0), Some(4096.0));
        let panel = Panel { title: "reads".into(), curves: vec![Curve { name: "HDSP", values }] };
        let svg = draw("by the size of blocks", &sizes, &[panel]);
        assert!(svg.contains("points=\"61.6,186.0 88.9,106.0 334.4,26.0\""), "{svg}");
        assert!(svg.contains(">reads<") && svg.contains(">1024K<") && svg.contains(">HDSP<"), "{svg}");
    }
}
