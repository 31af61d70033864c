//! Raw Ethernet between two network namespaces that are made for each test. Needs root; skipped without.

mod hosts;
mod packet;
mod xdp;
