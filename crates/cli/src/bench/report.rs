//! The measurement for people and for programs.

use std::time::Duration;

use sanwire_core::Size;
use serde_json::{Value, json};

use super::{Load, Measured};
use crate::args::{Pattern, VolumePlace};

impl Measured {
    fn operations(&self) -> u64 {
        self.reads + self.writes
    }

    fn per_second(&self, amount: f64) -> f64 {
        amount / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn bytes(&self, load: &Load) -> f64 {
        self.operations() as f64 * f64::from(load.block_bytes)
    }

    fn cpu_per_operation_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations().max(1) as f64
    }

    /// A few lines for people.
    pub(crate) fn describe(&self, url: &VolumePlace, load: &Load) -> String {
        let latency = &self.latency;
        format!(
            "{url}: {} {}, {} % reads, depth {}, {:.1} s\n\
             \x20 IOPS           {:.0}\n\
             \x20 MiB/s          {:.1}\n\
             \x20 latency        mean {}  p50 {}  p99 {}  p99.9 {}  max {}\n\
             \x20 CPU            {:.2} us per operation in this process\n",
            Size(load.block_bytes.into()),
            order_name(load.pattern),
            load.reads_percent,
            load.depth,
            self.elapsed.as_secs_f64(),
            self.per_second(self.operations() as f64),
            self.per_second(self.bytes(load)) / f64::from(1 << 20),
            micros(latency.mean()),
            micros(latency.quantile(500)),
            micros(latency.quantile(990)),
            micros(latency.quantile(999)),
            micros(latency.max()),
            self.cpu_per_operation_us(),
        )
    }

    /// The same for programs, with units in the names.
    pub(crate) fn to_json(&self, url: &VolumePlace, load: &Load) -> Value {
        let latency = &self.latency;
        let us = |duration: Duration| duration.as_secs_f64() * 1e6;
        json!({
            "url": url.to_string(),
            "block_bytes": load.block_bytes,
            "depth": load.depth,
            "reads_percent": load.reads_percent,
            "pattern": order_name(load.pattern),
            "start_bytes": load.range.start_bytes,
            "end_bytes": load.range.end_bytes,
            "seconds": self.elapsed.as_secs_f64(),
            "reads": self.reads,
            "writes": self.writes,
            "iops": self.per_second(self.operations() as f64),
            "bytes_per_second": self.per_second(self.bytes(load)),
            "latency_us": {
                "mean": us(latency.mean()),
                "p50": us(latency.quantile(500)),
                "p99": us(latency.quantile(990)),
                "p99_9": us(latency.quantile(999)),
                "max": us(latency.max()),
            },
            "client_cpu_us_per_operation": self.cpu_per_operation_us(),
        })
    }
}

fn order_name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Random => "random",
        Pattern::Sequential => "sequential",
    }
}

fn micros(duration: Duration) -> String {
    format!("{:.1} us", duration.as_secs_f64() * 1e6)
}
