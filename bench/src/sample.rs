//! One measurement, several of them, and what is in the middle.

use serde_json::{Map, Value, json};

/// What one run gave. What a contender does not tell stays `None`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) iops: Option<f64>,
    pub(crate) mib_per_s: Option<f64>,
    pub(crate) latency_p50_us: Option<f64>,
    pub(crate) server_cpu_us: Option<f64>,
    pub(crate) client_cpu_us: Option<f64>,
    /// Both ways.
    pub(crate) packets_per_io: Option<f64>,
    /// Of what another contender gives, which the part says.
    pub(crate) share: Option<f64>,
    /// Of the bytes that writes have brought, or answers have carried, the part that the server has not copied.
    pub(crate) in_place: Option<f64>,
    /// Of the time of all processors of the machine, the part that was not idle.
    pub(crate) busy: Option<f64>,
    /// How often the program that receives the data has copied a byte of it.
    pub(crate) copies_per_byte: Option<f64>,
}

/// Which number of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    Iops,
    MibPerS,
    LatencyP50Us,
    ServerCpuUs,
    ClientCpuUs,
    PacketsPerIo,
    ServerCpuUsPerPacket,
    ClientCpuUsPerPacket,
    Share,
    InPlace,
    ServerCpuSecondsPerGib,
    ClientCpuSecondsPerGib,
    /// Of one processor.
    ServerCpuPercent,
    ClientCpuPercent,
    Busy,
    CopiesPerByte,
}

impl Measure {
    pub(crate) const ALL: [(Measure, &str); 16] = [
        (Measure::Iops, "iops"),
        (Measure::MibPerS, "mib_per_s"),
        (Measure::LatencyP50Us, "latency_p50_us"),
        (Measure::ServerCpuUs, "server_cpu_us_per_io"),
        (Measure::ClientCpuUs, "client_cpu_us_per_io"),
        (Measure::PacketsPerIo, "packets_per_io"),
        (Measure::ServerCpuUsPerPacket, "server_cpu_us_per_packet"),
        (Measure::ClientCpuUsPerPacket, "client_cpu_us_per_packet"),
        (Measure::Share, "share"),
        (Measure::InPlace, "in_place"),
        (Measure::ServerCpuSecondsPerGib, "server_cpu_seconds_per_gib"),
        (Measure::ClientCpuSecondsPerGib, "client_cpu_seconds_per_gib"),
        (Measure::ServerCpuPercent, "server_cpu_percent"),
        (Measure::ClientCpuPercent, "client_cpu_percent"),
        (Measure::Busy, "busy"),
        (Measure::CopiesPerByte, "copies_per_byte"),
    ];

    fn of(self, sample: &Sample) -> Option<f64> {
        let per_packet = |cpu_us: Option<f64>| Some(cpu_us? / sample.packets_per_io.filter(|count| *count > 0.0)?);
        let per_gib = |cpu_us: Option<f64>| {
            let mib_per_io = sample.mib_per_s? / sample.iops.filter(|iops| *iops > 0.0)?;
            Some(cpu_us? / 1e6 / mib_per_io.max(f64::MIN_POSITIVE) * 1024.0)
        };
        let percent = |cpu_us: Option<f64>| Some(cpu_us? * sample.iops? / 1e6 * 100.0);
        match self {
            Measure::Iops => sample.iops,
            Measure::MibPerS => sample.mib_per_s,
            Measure::LatencyP50Us => sample.latency_p50_us,
            Measure::ServerCpuUs => sample.server_cpu_us,
            Measure::ClientCpuUs => sample.client_cpu_us,
            Measure::Share => sample.share,
            Measure::InPlace => sample.in_place,
            Measure::ServerCpuSecondsPerGib => per_gib(sample.server_cpu_us),
            Measure::ClientCpuSecondsPerGib => per_gib(sample.client_cpu_us),
            Measure::ServerCpuPercent => percent(sample.server_cpu_us),
            Measure::ClientCpuPercent => percent(sample.client_cpu_us),
            Measure::Busy => sample.busy,
            Measure::CopiesPerByte => sample.copies_per_byte,
            Measure::PacketsPerIo => sample.packets_per_io,
            Measure::ServerCpuUsPerPacket => per_packet(sample.server_cpu_us),
            Measure::ClientCpuUsPerPacket => per_packet(sample.client_cpu_us),
        }
    }
}

/// The smallest, the middle and the largest of the rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

/// The median of the row of that contender and load, if there is one.
pub(crate) fn median<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    contender: &str,
    load: &str,
    measure: Measure,
) -> Option<f64> {
    let row = rows.into_iter().find(|row| row.contender == contender && row.load == load)?;
    Some(row.spread(measure)?.median)
}

/// Gives each sample its share of what that contender does with the same load, by its median.
pub(crate) fn compare(rows: &mut [Row], contender: &str) {
    let reference = rows.to_vec();
    for row in rows {
        let whole = median(&reference, contender, &row.load, Measure::Iops).filter(|iops| *iops > 0.0);
        for sample in &mut row.samples {
            sample.share = sample.iops.zip(whole).map(|(iops, whole)| iops / whole);
        }
    }
}

/// The rounds of one measurement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) mtu_bytes: u32,
    /// Who, on what store: `HS/eth ram`, `vblade tmpfs`.
    pub(crate) contender: String,
    /// What: `4K random read qd32`.
    pub(crate) load: String,
    pub(crate) command: String,
    pub(crate) samples: Vec<Sample>,
}

impl Row {
    /// A row for tests, with a round for each of these.
    #[cfg(test)]
    pub(crate) fn of_iops(contender: &str, load: &str, iops: &[f64]) -> Row {
        let samples = iops.iter().map(|&iops| Sample { iops: Some(iops), ..Sample::default() }).collect();
        Row { mtu_bytes: 1500, contender: contender.into(), load: load.into(), command: String::new(), samples }
    }

    /// The spread of a number over the rounds; `None` when no round gave it.
    pub(crate) fn spread(&self, measure: Measure) -> Option<Spread> {
        let mut values: Vec<f64> = self.samples.iter().filter_map(|sample| measure.of(sample)).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Spread { min, median, max })
    }

    /// For the results file, every round in it.
    pub(crate) fn to_json(&self) -> Value {
        let mut numbers = Map::new();
        for (measure, name) in Measure::ALL {
            if let Some(Spread { min, median, max }) = self.spread(measure) {
                let rounds: Vec<Option<f64>> = self.samples.iter().map(|sample| measure.of(sample)).collect();
                numbers.insert(name.into(), json!({ "min": min, "median": median, "max": max, "rounds": rounds }));
            }
        }
        json!({
            "mtu_bytes": self.mtu_bytes, "contender": self.contender, "load": self.load, "command": self.command,
            "numbers": numbers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_rounds() {
        let row = |values| Row::of_iops("", "", values);
        assert_eq!(row(&[3.0, 1.0, 9.0]).spread(Measure::Iops), Some(Spread { min: 1.0, median: 3.0, max: 9.0 }));
        assert_eq!(row(&[4.0, 1.0]).spread(Measure::Iops), Some(Spread { min: 1.0, median: 2.5, max: 4.0 }));
        assert_eq!(row(&[]).spread(Measure::Iops), None);
        assert_eq!(row(&[1.0]).spread(Measure::MibPerS), None);
    }

    #[test]
    fn time_per_byte_follows_from_time_per_operation() {
        // 1000 operations of 512 KiB.
        let sample =
            Sample { iops: Some(1000.0), mib_per_s: Some(500.0), server_cpu_us: Some(250.0), ..Sample::default() };
        let row = Row { samples: vec![sample], ..Row::of_iops("", "", &[]) };
        let seconds = row.spread(Measure::ServerCpuSecondsPerGib).unwrap().median;
        assert!((seconds - 0.512).abs() < 1e-9, "{seconds}");
        let percent = row.spread(Measure::ServerCpuPercent).unwrap().median;
        assert!((percent - 25.0).abs() < 1e-9, "{percent}");
    }
}
