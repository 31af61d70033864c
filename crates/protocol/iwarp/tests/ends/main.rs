//! Both ends of iWARP over a stream that a test cuts, and peers that keep no rule.

mod arrival;
mod cuts;
mod dissection;
mod formats;
mod hostile;
mod operations;
mod startup;
mod world;
