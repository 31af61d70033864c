//! Sanwire and tgt, side by side.

use anyhow::Result;

use crate::process::{Host, Running};
use crate::run::Settings;
use crate::servers::{self, Files, TGT_TARGET, VOLUME_BYTES, Wire, start_tgt};

const WIRE: Wire = Wire::Iscsi("127.0.0.1:3260");
const TGT_PORTAL: &str = "127.0.0.1:3261";

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contender {
    Sanwire,
    Tgt,
}

/// What a disk is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Store {
    Ram,
    /// Nothing at all: what the protocol alone costs.
    Null,
    /// A file in memory.
    Tmpfs,
}

impl Store {
    pub(super) fn name(self) -> &'static str {
        match self {
            Store::Ram => "ram",
            Store::Null => "null",
            Store::Tmpfs => "tmpfs",
        }
    }
}

/// The servers, and what is needed to put load on them.
#[derive(Debug)]
pub(super) struct Bed<'a> {
    pub(super) host: Host<'a>,
    sanwire: Running,
    tgt: Option<Running>,
    /// The path of `sanwire`.
    pub(super) program: String,
    pub(super) client_key: String,
    pub(super) seconds: f64,
}

impl<'a> Bed<'a> {
    /// Starts both.
    pub(super) fn new(host: Host<'a>, settings: &Settings, files: &Files) -> Result<Self> {
        let program = settings.programs[0].clone();
        let tgt_file = files.image("tgt.img")?;
        // tgt wants a path also for what has none.
        let tgt_disks: [&[&str]; 2] = [&["--bstype", "null", "-b", "/dev/null"], &["-b", &tgt_file]];
        Ok(Bed {
            sanwire: start_sanwire(&host, &program, files)?,
            tgt: start_tgt(&host, TGT_PORTAL, &tgt_disks)?,
            host,
            program,
            client_key: files.path("client.key"),
            seconds: settings.seconds,
        })
    }

    pub(super) fn server(&self, contender: Contender) -> Option<&Running> {
        match contender {
            Contender::Sanwire => Some(&self.sanwire),
            Contender::Tgt => self.tgt.as_ref(),
        }
    }
}

/// Where the disk is.
pub(super) fn url(contender: Contender, store: Store) -> String {
    match (contender, store) {
        (Contender::Sanwire, _) => WIRE.url(store.name()),
        (Contender::Tgt, Store::Null | Store::Ram) => format!("iscsi://{TGT_PORTAL}/{TGT_TARGET}/1"),
        (Contender::Tgt, Store::Tmpfs) => format!("iscsi://{TGT_PORTAL}/{TGT_TARGET}/2"),
    }
}

/// Our server with a volume of each kind.
pub(super) fn start_sanwire(host: &Host, sanwire: &str, files: &Files) -> Result<Running> {
    let volumes = [
        format!("ram=ram:{VOLUME_BYTES}"),
        format!("null=null:{VOLUME_BYTES}"),
        format!("tmpfs=file:{}", files.image("sanwire.img")?),
    ];
    servers::start_sanwire(host, sanwire, files, &[WIRE], &volumes, &[])
}
