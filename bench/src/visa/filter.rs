//! The program that judges commands: a filter of a dozen instructions that lets everything through which initiators do here.

use std::fs;

use anyhow::Result;

/// 14 instructions run for a command: it may end within the unit's first tebibyte, and have 2048 blocks.
const TEXT: &str = r#"(module
  (memory (export "memory") 1)
  (global (export "sanwire_abi_1") i32 (i32.const 0))
  ;; Command at 1024, answer at 2048; no ranges, no data, no state; reads and writes.
  (data (i32.const 0)
    "\00\04\00\00" "\00\08\00\00"
    "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
    "\06\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
  (func (export "judge") (result i32)
    (if (i64.gt_u (i64.add (i64.load offset=1064 (i32.const 0)) (i64.load offset=1072 (i32.const 0)))
                  (i64.const 0x80000000))
      (then (return (i32.const 2))))
    (if (i64.gt_u (i64.load offset=1072 (i32.const 0)) (i64.const 2048))
      (then (return (i32.const 2))))
    (i32.const 1)))"#;

/// The module.
///
/// # Errors
/// When the text is none of a module.
pub(super) fn module() -> Result<Vec<u8>> {
    Ok(wat::parse_str(TEXT)?)
}

/// Puts it into a file.
///
/// # Errors
/// When that cannot be written.
pub(super) fn write(path: &str) -> Result<()> {
    Ok(fs::write(path, module()?)?)
}
