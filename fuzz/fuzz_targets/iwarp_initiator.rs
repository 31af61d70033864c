//! The initiator of an iWARP stream and a peer that knows the keys and keeps no rule: no panic, no endless sending, nothing written
//! beside what was advertised, all memory back in the end.
#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::Region;
use sanwire_fuzz::iwarp::{MEMORY_BYTES, run};

fuzz_target!(|input: &[u8]| {
    let Ok(memory) = Region::new(MEMORY_BYTES) else { return };
    let _ = run(&mut Unstructured::new(input), true, &memory);
    assert_eq!(memory.free_bytes(), memory.length_bytes(), "memory was lost");
});
