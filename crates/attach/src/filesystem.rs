//! The volume as the one file of a file system.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, Notifier, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, WriteFlags,
};
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_initiator::VolumeError;

use crate::bytes::ByteVolume;
use crate::executor::{Executor, block_on};

const ROOT: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);

/// How long the kernel may believe the file's size.
const ATTRIBUTES_TTL: Duration = Duration::from_secs(1);
/// Asynchronous requests that the kernel has in flight at the most.
const BACKGROUND_MAX: u16 = 256;

const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 16;
const OPEN_SYNC: i32 = 0o4_000_000;
const OPEN_DSYNC: i32 = 0o10_000;

/// The kernel forgets what it knows of the file's size.
pub(crate) fn tell_growth(kernel: &Notifier) -> std::io::Result<()> {
    // From no place on: the content stays.
    kernel.inval_inode(FILE, -1, 0)
}

/// A root directory with one file in it: the volume.
///
/// The file is not cached (another host may write the volume, and a loop device caches above it). Requests are
/// finished by the executor's workers, so that the threads which read from the kernel never wait for the server,
/// except for room to put a write into.
pub(crate) struct VolumeFilesystem {
    shared: Arc<Shared>,
}

struct Shared {
    volume: ByteVolume,
    executor: Executor,
    file_name: String,
    mounted_at: SystemTime,
    uid: u32,
    gid: u32,
}

impl VolumeFilesystem {
    pub(crate) fn new(volume: ByteVolume, executor: Executor, file_name: String) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let shared = Shared { volume, executor, file_name, mounted_at: SystemTime::now(), uid, gid };
        VolumeFilesystem { shared: Arc::new(shared) }
    }

    fn answer(&self, reply: ReplyEmpty, work: impl Future<Output = Result<(), VolumeError>> + Send + 'static) {
        self.shared.executor.spawn(async move {
            match work.await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno_of(&error)),
            }
        });
    }

    fn flush_to(&self, reply: ReplyEmpty) {
        if self.shared.volume.info().read_only {
            return reply.ok();
        }
        let volume = self.shared.volume.clone();
        self.answer(reply, async move { volume.flush().await });
    }
}

impl Shared {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let info = self.volume.info();
        let (kind, perm, size) = match ino {
            ROOT => (FileType::Directory, 0o500, 0),
            FILE => (FileType::RegularFile, if info.read_only { 0o400 } else { 0o600 }, info.size_bytes),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind,
            perm,
            nlink: if ino == ROOT { 2 } else { 1 },
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: info.physical_block_bytes.max(4096),
            flags: 0,
        })
    }

    /// The part of a range that lies within the volume, as a length.
    fn within(&self, offset_bytes: u64, length_bytes: u64) -> u64 {
        length_bytes.min(self.volume.info().size_bytes.saturating_sub(offset_bytes))
    }

    async fn read(&self, offset_bytes: u64, length: u64, reply: ReplyData) {
        let mut parts = self.volume.parts(offset_bytes, length).peekable();
        let Some((at, part)) = parts.next() else { return reply.data(&[]) };
        if parts.peek().is_none() {
            return match self.volume.read(at, part).await {
                Ok(data) => reply.data(data.payload()),
                Err(error) => reply.error(errno_of(&error)),
            };
        }
        let mut whole = Vec::with_capacity(length as usize);
        for (at, part) in std::iter::once((at, part)).chain(parts) {
            match self.volume.read(at, part).await {
                Ok(data) => whole.extend_from_slice(data.payload()),
                Err(error) => return reply.error(errno_of(&error)),
            }
        }
        reply.data(&whole);
    }
}

fn errno_of(error: &VolumeError) -> Errno {
    tracing::debug!(%error, "a request failed");
    Errno::from_i32(error.errno())
}

impl Filesystem for VolumeFilesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each is an improvement that an older kernel may not know.
        for capability in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP] {
            let _ = config.add_capabilities(capability);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ =
            config.set_max_write(self.shared.volume.info().transfer_max_bytes.clamp(4096, TRANSFER_MAX_BYTES as u32));
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.shared.attributes(FILE) {
            Some(attributes) if parent == ROOT && name == self.shared.file_name.as_str() => {
                reply.entry(&ATTRIBUTES_TTL, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.shared.attributes(ino) {
            Some(attributes) => reply.attr(&ATTRIBUTES_TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// The size is the volume's: opening with O_TRUNC (as `dd` and `cp` do) leaves it as it is. Nor has the file
    /// times or an owner of its own.
    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let size_bytes = self.shared.volume.info().size_bytes;
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        match size {
            Some(size) if size > size_bytes => reply.error(Errno::EFBIG),
            _ => self.getattr(request, ino, handle, reply),
        }
    }

    /// There are none. The kernel asks at every write (`security.capability`) until it is told so in these words.
    fn getxattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != fuser::OpenAccMode::O_RDONLY;
        match ino {
            FILE if writes && self.shared.volume.info().read_only => reply.error(Errno::EROFS),
            FILE => {
                reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
            }
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset_bytes: u64,
        length: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let shared = Arc::clone(&self.shared);
        let length = shared.within(offset_bytes, u64::from(length));
        self.shared.executor.spawn(async move { shared.read(offset_bytes, length, reply).await });
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset_bytes: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = self.shared.within(offset_bytes, data.len() as u64) as usize;
        if length == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let mut buffers = Vec::with_capacity(1);
        let mut rest = &data[..length];
        for (at, part) in self.shared.volume.parts(offset_bytes, length as u64) {
            let (now, later) = rest.split_at(part);
            rest = later;
            match block_on(self.shared.volume.write_buffer(at, part)) {
                Ok(mut buffer) => {
                    buffer.payload_mut().copy_from_slice(now);
                    buffers.push(buffer);
                }
                Err(error) => return reply.error(errno_of(&error)),
            }
        }
        let stable = flags.0 & (OPEN_SYNC | OPEN_DSYNC) != 0;
        let volume = self.shared.volume.clone();
        self.shared.executor.spawn(async move {
            for buffer in buffers {
                if let Err(error) = volume.write(buffer, stable).await {
                    return reply.error(errno_of(&error));
                }
            }
            reply.written(length as u32);
        });
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Closing a disk is no reason to make it stable; fsync is.
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        self.flush_to(reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset_bytes: u64,
        length_bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let within = self.shared.within(offset_bytes, length_bytes);
        let volume = self.shared.volume.clone();
        match mode & !FALLOC_KEEP_SIZE {
            FALLOC_PUNCH_HOLE => self.answer(reply, async move { volume.punch(offset_bytes, within).await }),
            FALLOC_ZERO_RANGE => {
                self.answer(reply, async move { volume.write_zeroes(offset_bytes, within).await });
            }
            0 if within == length_bytes => reply.ok(),
            0 => reply.error(Errno::ENOSPC),
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.shared.file_name.as_str()),
        ];
        for (place, (ino, kind, name)) in (1u64..).zip(entries) {
            if place > offset && reply.add(ino, place, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let info = self.shared.volume.info();
        let block_bytes = info.block_bytes.max(512);
        reply.statfs(info.size_bytes / u64::from(block_bytes), 0, 0, 2, 0, block_bytes, 255, block_bytes);
    }
}
