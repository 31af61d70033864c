//! Two honest ends over a network that the fuzzer rules: nothing runs twice, nothing is changed, everything ends.
#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sanwire_fuzz::world::World;

fuzz_target!(|input: &[u8]| {
    let mut u = Unstructured::new(input);
    let Ok(mut world) = World::new(&mut u) else { return };
    for _ in 0..400 {
        if u.is_empty() || world.step(&mut u).is_err() {
            break;
        }
    }
    world.settle();
});
