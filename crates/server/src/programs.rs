//! The programs that judge the commands of derived volumes: their modules, and what they remember.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sanwire_program::{Limits, Program, ProgramStatistics, StateKeeper};

use crate::persist::{read_file, replace_file};

/// The programs of one server.
#[derive(Clone, Default, Debug)]
pub(crate) struct Programs(Arc<Shared>);

#[derive(Default, Debug)]
struct Shared {
    /// Where modules are that were sent to the server, and what programs remember; `None`: nowhere.
    directory: Option<PathBuf>,
    /// Those that judge, by their volumes.
    loaded: Mutex<BTreeMap<String, Loaded>>,
}

/// One that judges the commands of a volume.
#[derive(Debug)]
struct Loaded {
    program: Weak<Program>,
    /// Whether its state is still kept, and no other one's in its place.
    keeps: Arc<Mutex<bool>>,
}

/// What a program remembers: `UUID.state` of its volume.
#[derive(Debug)]
struct StateFile {
    path: PathBuf,
    /// Held while it is written.
    keeps: Arc<Mutex<bool>>,
}

impl Programs {
    /// Those of a server that has this directory for them.
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        Programs(Arc::new(Shared { directory, loaded: Mutex::default() }))
    }

    /// Where the module of a volume is that was sent to the server; `None`: there is no place for it.
    pub(crate) fn module_file(&self, volume: &str) -> Option<PathBuf> {
        // The name of a volume has no slash.
        Some(self.0.directory.as_ref()?.join(format!("{volume}.wasm")))
    }

    /// Keeps a module for a volume.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn keep_module(&self, volume: &str, module: &[u8]) -> io::Result<()> {
        let file = self.module_file(volume).ok_or_else(|| io::Error::other("there is no state directory"))?;
        replace_file(&file, module)
    }

    /// The program of a volume, by the module in this file; what it remembers is that of the volume with this identity.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub(crate) fn load(&self, volume: &str, file: &Path, uuid: [u8; 16]) -> Result<Arc<Program>, String> {
        let limits = Limits::default();
        let module = read_module(file, limits.module_bytes).map_err(|error| error.to_string())?;
        check_module(&module)?;
        let former = self.lock().remove(volume);
        if let Some(former) = former {
            // Commands that it judges may still be under way: this one goes on from what is durable now.
            former.flush(volume).map_err(|error| error.to_string())?;
            former.end();
        }
        let keeps = Arc::new(Mutex::new(true));
        let keeper = self
            .state_file(uuid)
            .map(|path| Arc::new(StateFile { path, keeps: Arc::clone(&keeps) }) as Arc<dyn StateKeeper>);
        let program = Arc::new(Program::load(&module, limits, keeper).map_err(|error| error.to_string())?);
        let loaded = Loaded { program: Arc::downgrade(&program), keeps };
        self.lock().insert(volume.to_owned(), loaded);
        Ok(program)
    }

    /// Makes durable what all of them remember: nothing asks them any more.
    ///
    /// # Errors
    /// The first that is met; the others are made durable all the same.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let loaded = self.lock();
        let results: Vec<_> = loaded.iter().map(|(volume, loaded)| loaded.flush(volume)).collect();
        results.into_iter().collect()
    }

    /// Forgets the module that was sent for a volume, and what its program remembers.
    pub(crate) fn forget(&self, volume: &str, uuid: Option<[u8; 16]>) {
        if let Some(loaded) = self.lock().remove(volume) {
            loaded.end();
        }
        let module = self.module_file(volume).into_iter();
        // One that stays is of a volume that does not come again.
        module.for_each(|file| drop(fs::remove_file(file)));
        uuid.into_iter().for_each(|uuid| self.forget_state(uuid));
    }

    /// Forgets what the program of a volume remembers that nobody has any more.
    pub(crate) fn forget_state(&self, uuid: [u8; 16]) {
        let file = self.state_file(uuid).into_iter();
        // One that stays is of a volume that does not come again.
        file.for_each(|file| drop(fs::remove_file(file)));
    }

    /// Removes what a crash has left here of volumes that were not made after all: modules of those that are not known, and what programs
    /// remember of none of these identities. Other files stay.
    pub(crate) fn remove_litter(&self, is_known: impl Fn(&str) -> bool, identities: &BTreeSet<[u8; 16]>) {
        let Some(entries) = self.0.directory.as_ref().and_then(|directory| fs::read_dir(directory).ok()) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let is_litter = match path.extension().and_then(|extension| extension.to_str()) {
                Some("wasm") => !is_known(name),
                Some("state") => {
                    let uuid = u128::from_str_radix(name, 16).ok().filter(|_| name.len() == 32);
                    uuid.is_some_and(|uuid| !identities.contains(&uuid.to_be_bytes()))
                }
                _ => false,
            };
            if is_litter {
                tracing::info!("{} is removed: it is of no volume", path.display());
                // One that stays is met at the next start.
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// What the program of a volume has done, if it has one.
    pub(crate) fn statistics(&self, volume: &str) -> Option<ProgramStatistics> {
        self.lock().get(volume)?.program.upgrade().map(|program| program.statistics())
    }

    fn state_file(&self, uuid: [u8; 16]) -> Option<PathBuf> {
        Some(self.0.directory.as_ref()?.join(format!("{:032x}.state", u128::from_be_bytes(uuid))))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Loaded>> {
        // It is whole between any two changes.
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loaded {
    fn flush(&self, volume: &str) -> io::Result<()> {
        let kept = self.program.upgrade().map_or(Ok(()), |program| program.flush());
        kept.map_err(|error| {
            let what = format!("what the program of volume {volume} remembers cannot be kept: {error}");
            io::Error::new(error.kind(), what)
        })
    }

    /// Nothing is kept for it any more.
    fn end(&self) {
        *self.keeps.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// What a module says of itself, if it is a program.
///
/// # Errors
/// Why it is none, for people.
pub(crate) fn check_module(module: &[u8]) -> Result<(), String> {
    Program::describe(module, Limits::default()).map(drop).map_err(|error| error.to_string())
}

/// The same of a file, which may be anything.
///
/// # Errors
/// Why it is none, for people.
pub fn check_module_file(file: &Path) -> Result<(), String> {
    let module = read_module(file, Limits::default().module_bytes).map_err(|error| error.to_string())?;
    check_module(&module)
}

/// A module, and no more of a longer file than shows that it is too long.
fn read_module(file: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(file)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut module = Vec::new();
    fs::File::open(file)?.take(max_bytes as u64 + 1).read_to_end(&mut module)?;
    Ok(module)
}

impl StateKeeper for StateFile {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        read_file(&self.path)
    }

    fn save(&self, record: &[u8]) -> io::Result<()> {
        let keeps = self.keeps.lock().unwrap_or_else(PoisonError::into_inner);
        if *keeps { replace_file(&self.path, record) } else { Ok(()) }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::Principal;
    use sanwire_device::{BlockRange, JudgedCommand, Verdict};
    use sanwire_scsi::{Cdb, OperationClasses};

    use super::*;

    #[test]
    fn what_is_kept_for_a_volume_is_forgotten_with_it() {
        let directory = std::env::temp_dir().join(format!("sanwire-programs-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let programs = Programs::new(Some(directory.join("programs")));
        programs.keep_module("cam", b"no module").unwrap();
        let file = programs.module_file("cam").unwrap();
        let refused = programs.load("cam", &file, [7; 16]).unwrap_err();
        assert!(!refused.is_empty() && programs.statistics("cam").is_none());
        let keeps = Arc::new(Mutex::new(true));
        let path = programs.state_file([7; 16]).unwrap();
        let keeper = StateFile { path: path.clone(), keeps: Arc::clone(&keeps) };
        keeper.save(b"state").unwrap();
        assert_eq!(keeper.load().unwrap().as_deref(), Some(&b"state"[..]));
        let loaded = Loaded { program: Weak::new(), keeps };
        programs.lock().insert("cam".into(), loaded);
        programs.forget("cam", Some([7; 16]));
        keeper.save(b"late").unwrap();
        assert!(!file.exists() && !path.exists(), "nothing comes back");
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Counts the writes that it judges, and keeps that when it is convenient.
    const COUNTER: &str = r#"(module
      (memory (export "memory") 1)
      (global (export "sanwire_abi_1") i32 (i32.const 0))
      (data (i32.const 0)
        "\00\04\00\00" "\00\08\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\0c\00\00" "\04\00\00\00"
        "\04\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
      (func (export "judge") (result i32)
        (i32.store offset=3072 (i32.const 0) (i32.add (i32.load offset=3072 (i32.const 0)) (i32.const 1)))
        (if (i32.gt_u (i32.load offset=3072 (i32.const 0)) (i32.const 3)) (then (return (i32.const 2))))
        (i32.const 1)))"#;

    /// Whether the program lets a write through.
    fn judge(program: &Program) -> bool {
        let command = JudgedCommand {
            cdb: &Cdb::new(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]).unwrap(),
            classes: OperationClasses::WRITE,
            ranges: &[BlockRange { lba: 0, blocks: 1 }],
            capacity_blocks: 8,
            block_bytes: 512,
            principal: &Principal::default(),
            principal_number: 0,
            unix_ms: 0,
            waited_ms: 0,
            data_out: &[],
        };
        matches!(program.run(&command).judgement.verdict, Verdict::Allow)
    }

    #[test]
    fn a_program_goes_on_where_the_one_before_it_was() {
        let directory = std::env::temp_dir().join(format!("sanwire-counters-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let programs = Programs::new(Some(directory.join("programs")));
        programs.keep_module("cam", &wat::parse_str(COUNTER).unwrap()).unwrap();
        let load = |programs: &Programs| programs.load("cam", &programs.module_file("cam").unwrap(), [7; 16]).unwrap();
        let first = load(&programs);
        assert!(judge(&first));
        let second = load(&programs);
        assert!(judge(&second) && judge(&first) && judge(&first), "each on its own from now on");
        first.flush().unwrap();
        programs.flush().unwrap();
        // As a process that is started after this one.
        let again = Programs::new(Some(directory.join("programs")));
        let third = load(&again);
        assert!(judge(&third) && !judge(&third), "the first one's last two count nowhere");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn without_a_directory_nothing_is_kept_and_that_is_said() {
        let programs = Programs::default();
        assert!(programs.module_file("cam").is_none());
        assert!(programs.keep_module("cam", b"").unwrap_err().to_string().contains("no state directory"));
        assert!(check_module_file(Path::new("/dev/zero")).unwrap_err().contains("no regular file"));
    }
}
