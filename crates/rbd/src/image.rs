//! An image that is open: what may be asked of it, without a pointer.

use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::ptr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{c_char, c_int, c_void, iovec, size_t};

use crate::api::{Api, Callback, DiffCallback, Handle, LOCK_EXCLUSIVE, ZEROES_KEEP_SPACE, api};
use crate::error::{CONNECT, RbdError, check};
use crate::own::{self, OwnClient};

/// Owners of a lock that are told of, with room for an owner's text.
const OWNERS_MAX: size_t = 4;

/// Where an image is: `POOL/IMAGE`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ImageName {
    /// The pool.
    pub pool: String,
    /// The image.
    pub image: String,
}

impl FromStr for ImageName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pool, image) = text.split_once('/').ok_or(())?;
        let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '@', '\0']);
        let found = ImageName { pool: pool.to_owned(), image: image.to_owned() };
        if is_name(pool) && is_name(image) { Ok(found) } else { Err(()) }
    }
}

/// How an image is used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The cluster's configuration file; by default where Ceph's own programs look.
    pub config: Option<PathBuf>,
    /// As whom to connect, without `client.`; by default `admin`.
    pub user: Option<String>,
    /// The logical block: 512 (the default) or 4096 bytes.
    pub block_bytes: Option<u32>,
    /// Whether it is only read; then it needs no lock.
    pub read_only: bool,
    /// Whether an image that another server has is taken from it.
    pub takes_over: bool,
}

fn c_string(text: &str) -> Result<CString, RbdError> {
    CString::new(text).map_err(|_| RbdError::Name(text.to_owned()))
}

/// What librbd tells of the image from threads of its own.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) size_bytes: AtomicU64,
    pub(crate) has_changed: AtomicBool,
}

/// A connection to a cluster and what is open on it. Each image has its own: when its lock is broken, the cluster shuts out all
/// of the connection.
pub(crate) struct Image {
    api: &'static Api,
    cluster: Handle,
    pool: Handle,
    image: Handle,
    watch: Option<u64>,
    /// From the lock on until all of it has ended.
    own: Option<OwnClient>,
    /// Boxed: librbd has its address.
    pub(crate) news: Box<News>,
}

// SAFETY: librados and librbd say of all functions used here that threads may call them at once on one handle; the handles are
// ended by `drop` alone, which has the image for itself.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Opens an image, and takes its lock unless it is only read.
    pub(crate) fn open(name: &ImageName, options: &Options) -> Result<Image, RbdError> {
        let api = api()?;
        let (null, news) = (ptr::null_mut(), Box::<News>::default());
        // Whatever fails, the drop ends what has begun.
        let mut image = Image { api, cluster: null, pool: null, image: null, watch: None, own: None, news };
        image.connect(options)?;
        let (pool, wanted) = (c_string(&name.pool)?, c_string(&name.image)?);
        // SAFETY: the cluster is connected, the name ends with zero, the place takes a handle.
        check("open the pool", unsafe { (api.rados_ioctx_create)(image.cluster, pool.as_ptr(), &raw mut image.pool) })?;
        let open = if options.read_only { api.rbd_open_read_only } else { api.rbd_open };
        // SAFETY: as above; no snapshot.
        check("open the image", unsafe { open(image.pool, wanted.as_ptr(), &raw mut image.image, ptr::null()) })?;
        if !options.read_only {
            image.lock(name, options.takes_over)?;
            // It only tells later who has it.
            let owner = image.owners().ok().and_then(|owners| owners.into_iter().next());
            image.own = owner.map(|owner| OwnClient::begin(owner.to_string_lossy().into_owned(), name));
        }
        image.read_size()?;
        image.watch()?;
        Ok(image)
    }

    fn connect(&mut self, options: &Options) -> Result<(), RbdError> {
        let api = self.api;
        let user = c_string(options.user.as_deref().unwrap_or("admin"))?;
        // SAFETY: the place takes a handle, the name ends with zero.
        check("prepare for the Ceph cluster", unsafe { (api.rados_create)(&raw mut self.cluster, user.as_ptr()) })?;
        let file = options.config.as_ref().map(|file| c_string(&file.to_string_lossy())).transpose()?;
        let file = file.as_ref().map_or(ptr::null(), |file| file.as_ptr());
        // SAFETY: the handle is fresh; the path ends with zero, or is null for the usual places.
        check("read the Ceph configuration", unsafe { (api.rados_conf_read_file)(self.cluster, file) })?;
        for (key, value) in [
            // What is acknowledged is stable on all replicas; a second cache below that of initiators only delays.
            (c"rbd_cache", c"false"),
            // What is written is never changed while librbd has it.
            (c"rbd_disable_zero_copy_writes", c"false"),
            // The one wait without an end; requests have none on purpose, since the cluster may still carry them out.
            (c"client_mount_timeout", c"15"),
            // Whose lock is broken is shut out, whatever the configuration says; so the option is called since 16.2, and before.
            (c"rbd_blocklist_on_break_lock", c"true"),
            (c"rbd_blacklist_on_break_lock", c"true"),
        ] {
            // SAFETY: as above; both texts end with zero. A version without the key goes without.
            unsafe { (api.rados_conf_set)(self.cluster, key.as_ptr(), value.as_ptr()) };
        }
        // SAFETY: the handle is configured, and not connected yet.
        check(CONNECT, unsafe { (api.rados_connect)(self.cluster) })
    }

    /// Takes the exclusive lock: at once when it is free; after the cluster's watch timeout when its owner is dead.
    fn lock(&self, name: &ImageName, takes_over: bool) -> Result<(), RbdError> {
        let acquire = || {
            // SAFETY: the image is open.
            check("lock the image", unsafe { (self.api.rbd_lock_acquire)(self.image, LOCK_EXCLUSIVE) })
        };
        if takes_over {
            for owner in self.owners()? {
                tracing::warn!("the RBD image is taken over from {}", owner.to_string_lossy());
                // SAFETY: the image is open, the name ends with zero.
                let broken = unsafe { (self.api.rbd_lock_break)(self.image, LOCK_EXCLUSIVE, owner.as_ptr()) };
                // Who had it has left meanwhile.
                if broken != -libc::ENOENT {
                    check("break the image's lock", broken)?;
                }
            }
            // Who was shut out may have writes on their way: only servers that know of it refuse them.
            // SAFETY: the cluster is connected.
            check("wait for the cluster", unsafe { (self.api.rados_wait_for_latest_osdmap)(self.cluster) })?;
        }
        match acquire() {
            Err(RbdError::Ceph { ref source, .. })
                if matches!(source.raw_os_error(), Some(libc::EROFS | libc::EBUSY)) =>
            {
                let owners = self.owners()?;
                let owner = owners.first().map_or("unknown".into(), |owner| owner.to_string_lossy().into_owned());
                let is_own = own::is_client(&owner, name);
                Err(RbdError::Locked { owner, is_own })
            }
            taken => taken,
        }
    }

    /// Whether the cluster has shut this connection out. librbd does not always say so of requests that it has: some never end. It
    /// blocks for as long as the cluster hangs.
    pub(crate) fn is_shut_out(&self) -> bool {
        let mut is_owner = 0;
        // SAFETY: the image is open, the place takes a number.
        unsafe { (self.api.rbd_is_exclusive_lock_owner)(self.image, &raw mut is_owner) == -libc::ESHUTDOWN }
    }

    /// Who has the lock.
    fn owners(&self) -> Result<Vec<CString>, RbdError> {
        let (mut mode, mut count) = (0, OWNERS_MAX);
        let mut texts: [*mut c_char; OWNERS_MAX] = [ptr::null_mut(); OWNERS_MAX];
        // SAFETY: the image is open; there is room for as many texts as `count` says.
        let code =
            unsafe { (self.api.rbd_lock_get_owners)(self.image, &raw mut mode, texts.as_mut_ptr(), &raw mut count) };
        if code == -libc::ENOENT {
            return Ok(Vec::new());
        }
        check("ask which client has locked the image", code)?;
        let count = count.min(OWNERS_MAX);
        // SAFETY: the library has put so many texts there, each ending with zero.
        let owners = texts[..count].iter().map(|text| unsafe { CStr::from_ptr(*text) }.to_owned()).collect();
        // SAFETY: the same texts, which are not used any more.
        unsafe { (self.api.rbd_lock_get_owners_cleanup)(texts.as_mut_ptr(), count) };
        Ok(owners)
    }

    /// Asks how long the image is, and keeps it.
    pub(crate) fn read_size(&self) -> Result<u64, RbdError> {
        let mut size_bytes = 0;
        // SAFETY: the image is open, the place takes a number.
        check("ask for the image's size", unsafe { (self.api.rbd_get_size)(self.image, &raw mut size_bytes) })?;
        self.news.size_bytes.store(size_bytes, Ordering::Release);
        Ok(size_bytes)
    }

    fn watch(&mut self) -> Result<(), RbdError> {
        /// # Safety
        /// `argument` is the news of an image whose watch has not ended.
        unsafe extern "C" fn changed(argument: *mut c_void) {
            // SAFETY: the news live until the watch has ended.
            let news = unsafe { &*argument.cast::<News>() };
            news.has_changed.store(true, Ordering::Release);
        }
        let (mut watch, news) = (0, (&raw const *self.news).cast_mut().cast());
        // SAFETY: the image is open; the news outlive the watch, which `drop` ends.
        check("watch the image", unsafe { (self.api.rbd_update_watch)(self.image, &raw mut watch, changed, news) })?;
        self.watch = Some(watch);
        Ok(())
    }

    /// Makes the image longer.
    pub(crate) fn resize(&self, size_bytes: u64) -> Result<(), RbdError> {
        // SAFETY: the image is open.
        check("resize the image", unsafe { (self.api.rbd_resize)(self.image, size_bytes) })?;
        self.read_size().map(drop)
    }

    /// Begins an operation; `callback` is called with `argument` when it has ended, by another thread. An error means that it has
    /// not begun, and `callback` will not be called.
    ///
    /// # Safety
    /// The memory of a read or a write stays, and nobody else touches it (a read) or changes it (a write), until `callback` is called;
    /// so does the list of a write's runs.
    pub(crate) unsafe fn begin(
        &self,
        operation: Operation,
        callback: Callback,
        argument: *mut c_void,
    ) -> Result<(), c_int> {
        let (api, image, mut completion) = (self.api, self.image, ptr::null_mut());
        // SAFETY: the place takes a handle.
        let made = unsafe { (api.rbd_aio_create_completion)(argument, callback, &raw mut completion) };
        if made < 0 {
            return Err(made);
        }
        let code = match operation {
            // SAFETY: the caller keeps the memory, of that length.
            Operation::Read(at, memory, length) => unsafe { (api.rbd_aio_read)(image, at, length, memory, completion) },
            // SAFETY: the caller keeps the runs, so many of them, and the list of them.
            Operation::Write(at, runs, count) => unsafe { (api.rbd_aio_writev)(image, runs, count, at, completion) },
            // A discard would silently leave what is smaller than its granularity.
            Operation::Zero { at, length, keeps_space } => {
                let flags = if keeps_space { ZEROES_KEEP_SPACE } else { 0 };
                // SAFETY: no memory is involved.
                unsafe { (api.rbd_aio_write_zeroes)(image, at, length, completion, flags, 0) }
            }
            // SAFETY: no memory is involved.
            Operation::Flush => unsafe { (api.rbd_aio_flush)(image, completion) },
        };
        if code < 0 {
            // SAFETY: nothing was begun with it.
            unsafe { (api.rbd_aio_release)(completion) };
            return Err(code);
        }
        Ok(())
    }

    /// The first run of one kind in a range that is not empty: whether it exists, and its length. It blocks.
    pub(crate) fn first_extent(&self, offset_bytes: u64, length_bytes: u64) -> Result<(bool, u64), RbdError> {
        let mut found = Extents { next: offset_bytes, begins_mapped: false };
        let (argument, callback): (*mut c_void, DiffCallback) = ((&raw mut found).cast(), extent);
        // SAFETY: `found` lives until the call has ended, and only this call's callback has it.
        let code = unsafe {
            (self.api.rbd_diff_iterate2)(self.image, ptr::null(), offset_bytes, length_bytes, 1, 1, callback, argument)
        };
        if code != STOPPED {
            check("ask what is allocated", code)?;
        }
        let end = offset_bytes + length_bytes;
        if found.begins_mapped {
            return Ok((true, found.next.min(end) - offset_bytes));
        }
        let hole = if found.next > offset_bytes { found.next.min(end) } else { end };
        Ok((false, hole - offset_bytes))
    }
}

/// One operation, in bytes. The memory is the caller's.
pub(crate) enum Operation {
    Read(u64, *mut c_char, usize),
    /// Where, and so many runs of memory, one after the other.
    Write(u64, *const iovec, c_int),
    Zero {
        at: u64,
        length: usize,
        keeps_space: bool,
    },
    Flush,
}

struct Extents {
    /// Where the run that was found ends so far, or the hole does.
    next: u64,
    begins_mapped: bool,
}

/// A callback's word to stop.
const STOPPED: c_int = -libc::ECANCELED;

/// # Safety
/// `argument` is the [`Extents`] that `first_extent` gave, which nobody else has meanwhile.
unsafe extern "C" fn extent(offset_bytes: u64, length: size_t, exists: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: what `first_extent` gave, which waits for us.
    let found = unsafe { &mut *argument.cast::<Extents>() };
    if exists == 0 || length == 0 {
        return 0;
    }
    if offset_bytes > found.next {
        // Behind a hole: so long is that, or the run before it is over.
        if !found.begins_mapped {
            found.next = offset_bytes;
        }
        return STOPPED;
    }
    found.begins_mapped = true;
    found.next = found.next.max(offset_bytes.saturating_add(length as u64));
    0
}

impl Drop for Image {
    fn drop(&mut self) {
        let api = self.api;
        // SAFETY: each handle was opened, is ended once, and those on it before it; nothing is under way (see `RbdStore`).
        unsafe {
            if let Some(watch) = self.watch {
                (api.rbd_update_unwatch)(self.image, watch);
            }
            if !self.image.is_null() {
                (api.rbd_close)(self.image);
            }
            if !self.pool.is_null() {
                (api.rados_ioctx_destroy)(self.pool);
            }
            if !self.cluster.is_null() {
                (api.rados_shutdown)(self.cluster);
            }
        }
    }
}
