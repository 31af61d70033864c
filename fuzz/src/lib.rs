//! What the fuzz targets share: ends that break the rules but know the keys, and a world of two honest ends.
#![forbid(unsafe_code)]

pub mod caller;
pub mod command;
pub mod hdsp;
pub mod impostor;
pub mod iser;
pub mod iser_line;
pub mod iser_peer;
pub mod iwarp;
pub mod login;
pub mod program;
pub mod steps;
pub mod visa;
pub mod world;
