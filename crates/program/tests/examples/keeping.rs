//! What the examples remember through restarts.

use std::sync::Arc;

use sanwire_device::CommandProgram;

use crate::commands::Answer::{Allowed, Redirected};
use crate::commands::*;
use crate::compilers::module;

/// Loads the program anew with what was kept of it.
fn restarted(module: &[u8], kept: &Arc<Kept>, before: sanwire_program::Program) -> sanwire_program::Program {
    before.flush().unwrap();
    drop(before);
    load(module, kept)
}

#[test]
fn what_was_written_once_is_written_once_after_a_restart_too() {
    let Some(module) = module("write_once.rs") else { return };
    let kept = Arc::default();
    let program = load(&module, &kept);
    check(&program, &[(write(100, 8), Allowed)]);
    let program = restarted(&module, &kept, program);
    check(&program, &[(write(107, 1), WRITE_PROTECTED), (write(108, 1), Allowed)]);
}

#[test]
fn a_log_goes_on_where_it_ended() {
    let Some(module) = module("append_only.rs") else { return };
    let kept = Arc::default();
    let program = load(&module, &kept);
    check(&program, &[(write(0, 8), Allowed)]);
    let program = restarted(&module, &kept, program);
    check(&program, &[(write(8, 1), Allowed)]);
}

#[test]
fn pages_stay_where_they_were_written() {
    let Some(module) = module("copy_on_first_write.rs") else { return };
    let kept = Arc::default();
    let program = load(&module, &kept);
    let page = judgement(&program, &write(16, 8)).1.end.unwrap();
    assert!(program.ended(page, true).is_some());
    let program = restarted(&module, &kept, program);
    check(&program, &[(read(16, 8), Redirected(CAPACITY_BLOCKS / 2 + 16)), (read(24, 8), Allowed)]);
}

#[test]
fn a_partition_table_is_known_after_a_restart_too() {
    let Some(module) = module("partition_guard.c") else { return };
    let kept = Arc::default();
    let program = load(&module, &kept);
    let mut record = [0; 512];
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    check(&program, &[(write(0, 1).with(&record), Allowed)]);
    let program = restarted(&module, &kept, program);
    check(&program, &[(write(0, 1).with(&[0; 512]), WRITE_PROTECTED), (write(0, 1).with(&record), Allowed)]);
}
