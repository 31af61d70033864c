//! How fast it is: `cargo test -p sanwire-io --release -- --ignored --nocapture random_reads`.

use super::*;

const FILE_BYTES: u64 = 256 << 20;
const DEPTH: u32 = 32;

fn measure(file: &Arc<File>, kind: EngineKind, name: &str) {
    let memory = Region::new(4 << 20).unwrap();
    let mut engine = FileEngine::new(&memory, DEPTH, kind).unwrap();
    let mut frames: Vec<Frame> = (0..DEPTH).map(|_| memory.frame(4096).unwrap()).collect();
    let (mut random, mut count) = (1u64, 0u64);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        while let Some(frame) = frames.pop() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset_bytes = (random >> 33) % (FILE_BYTES / 4096) * 4096;
            engine.submit(0, read(file, offset_bytes, frame)).unwrap();
        }
        engine.flush().unwrap();
        let before = count;
        while count == before {
            engine.reap(&mut |_, completion| match completion {
                Ok(Outcome::Read(frame)) => {
                    count += 1;
                    frames.push(frame);
                }
                other => panic!("{other:?}"),
            });
            if count == before {
                assert!(is_woken(&engine, 60_000));
            }
        }
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("{name:>24} {kind:?}: {:.0} kIOPS", rate / 1000.0);
}

#[test]
#[ignore = "a measurement of several seconds"]
fn random_reads() {
    for (directory, direct) in [("/dev/shm", false), ("/var/tmp", false), ("/var/tmp", true)] {
        let mut file = scratch(directory, 0);
        io::Write::write_all(&mut &*file, &vec![7; FILE_BYTES as usize]).unwrap();
        file.sync_all().unwrap();
        if direct {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let how =
                std::os::unix::fs::OpenOptionsExt::custom_flags(File::options().read(true), libc::O_DIRECT).open(path);
            file = Arc::new(how.unwrap());
        }
        for kind in KINDS {
            measure(&file, kind, &format!("{directory}{}", if direct { " direct" } else { "" }));
        }
    }
}
