//! The program between two hosts: network namespaces joined by a veth link, real file systems, real failures.
//!
//! It takes root and the usual tools of a Linux host. What cannot run here says so on a line that begins with `SKIPPED`.
#![forbid(unsafe_code)]

mod aoe;
mod array_wires;
mod arrays;
mod attachments;
mod capture;
mod clocks;
mod conformance;
mod copies;
mod counters;
mod crash;
mod damaged;
mod discovery;
mod dvd;
mod errors;
mod faults;
mod filesystems;
mod foreign;
mod full_state;
mod growth;
mod guest;
mod harness;
mod hdsp;
mod image;
mod iscsi;
mod kept;
mod killed;
mod layers;
mod links;
mod manage;
mod many;
mod many_snapshots;
mod monitoring;
mod name_servers;
mod names;
mod options;
mod package;
mod qemu;
mod remote;
mod resources;
mod security;
mod service;
mod snapshot_groups;
mod snapshots;
mod state_sample;
mod suspension;
mod third_party;
mod timed;
mod transfers;
mod trunk;
mod upgrade;
mod visa;
mod web;
mod xdp;
