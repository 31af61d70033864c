//! The functions of librados and librbd that are used, as their headers declare them (LGPL-2.1; nothing of them is copied).

use std::sync::OnceLock;

use libc::{c_char, c_int, c_void, iovec, size_t};
use libloading::Library;

use crate::error::RbdError;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t` and `rbd_completion_t`: each a pointer that only the libraries look behind.
pub(crate) type Handle = *mut c_void;
/// `rbd_callback_t`.
pub(crate) type Callback = unsafe extern "C" fn(completion: Handle, argument: *mut c_void);
/// Of `rbd_diff_iterate2`: offset, length, whether it exists, argument.
pub(crate) type DiffCallback = unsafe extern "C" fn(u64, size_t, c_int, *mut c_void) -> c_int;

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(crate) const LOCK_EXCLUSIVE: c_int = 0;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`.
pub(crate) const ZEROES_KEEP_SPACE: c_int = 1;

macro_rules! api {
    ($($library:ident { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions, loaded. The libraries are never unloaded: their threads may outlive every handle.
        pub(crate) struct Api {
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Api {
            fn load() -> Result<Api, RbdError> {
                $(let $library = open(concat!("lib", stringify!($library), ".so.", version!($library)))?;)*
                let api = Api {
                    $($(
                        // SAFETY: the type is the one that the library's header gives to the function of this name, which has been
                        // the same in all versions with this SONAME.
                        $name: *unsafe { $library.get(concat!(stringify!($name), "\0").as_bytes()) }.map_err(missing)?,
                    )*)*
                };
                $(std::mem::forget($library);)*
                Ok(api)
            }
        }
    };
}

macro_rules! version {
    (rados) => {
        "2"
    };
    (rbd) => {
        "1"
    };
}

api! {
    rados {
        rados_create: fn(*mut Handle, *const c_char) -> c_int;
        rados_conf_read_file: fn(Handle, *const c_char) -> c_int;
        rados_conf_set: fn(Handle, *const c_char, *const c_char) -> c_int;
        rados_connect: fn(Handle) -> c_int;
        rados_shutdown: fn(Handle);
        rados_ioctx_create: fn(Handle, *const c_char, *mut Handle) -> c_int;
        rados_ioctx_destroy: fn(Handle);
        rados_wait_for_latest_osdmap: fn(Handle) -> c_int;
    }
    rbd {
        rbd_open: fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_open_read_only: fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_close: fn(Handle) -> c_int;
        rbd_get_size: fn(Handle, *mut u64) -> c_int;
        rbd_resize: fn(Handle, u64) -> c_int;
        rbd_update_watch: fn(Handle, *mut u64, unsafe extern "C" fn(*mut c_void), *mut c_void) -> c_int;
        rbd_update_unwatch: fn(Handle, u64) -> c_int;
        rbd_is_exclusive_lock_owner: fn(Handle, *mut c_int) -> c_int;
        rbd_lock_acquire: fn(Handle, c_int) -> c_int;
        rbd_lock_break: fn(Handle, c_int, *const c_char) -> c_int;
        rbd_lock_get_owners: fn(Handle, *mut c_int, *mut *mut c_char, *mut size_t) -> c_int;
        rbd_lock_get_owners_cleanup: fn(*mut *mut c_char, size_t);
        rbd_aio_create_completion: fn(*mut c_void, Callback, *mut Handle) -> c_int;
        rbd_aio_get_return_value: fn(Handle) -> isize;
        rbd_aio_release: fn(Handle);
        rbd_aio_read: fn(Handle, u64, size_t, *mut c_char, Handle) -> c_int;
        rbd_aio_writev: fn(Handle, *const iovec, c_int, u64, Handle) -> c_int;
        rbd_aio_write_zeroes: fn(Handle, u64, size_t, Handle, c_int, c_int) -> c_int;
        rbd_aio_flush: fn(Handle, Handle) -> c_int;
        rbd_diff_iterate2: fn(Handle, *const c_char, u64, u64, u8, u8, DiffCallback, *mut c_void) -> c_int;
    }
}

fn open(name: &str) -> Result<Library, RbdError> {
    // SAFETY: the initialisers of Ceph's libraries have no preconditions.
    unsafe { Library::new(name) }.map_err(missing)
}

fn missing(source: libloading::Error) -> RbdError {
    RbdError::Library { reason: source.to_string() }
}

/// The functions, loaded at the first call that finds the libraries.
pub(crate) fn api() -> Result<&'static Api, RbdError> {
    static API: OnceLock<Api> = OnceLock::new();
    if let Some(api) = API.get() {
        return Ok(api);
    }
    let loaded = Api::load()?;
    Ok(API.get_or_init(|| loaded))
}
