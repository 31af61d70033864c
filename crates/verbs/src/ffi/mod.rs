//! The functions of libibverbs and librdmacm that are used, and their structures, as their headers declare them (rdma-core, of whose
//! two licences we take the one of OpenIB, BSD and MIT; nothing is copied from it).
//!
//! Both libraries have had the same interface since 2008 (`IBVERBS_1.1`, `RDMACM_1.0`): structures only grow at their ends. The
//! classic verbs are used, which every provider has; siw, for one, has no others.

mod cm;
mod queue_pair;
mod verbs;

use std::sync::OnceLock;

use libc::{c_char, c_int, c_void};
use libloading::Library;

use crate::error::Unavailable;

pub(crate) use cm::*;
pub(crate) use queue_pair::*;
pub(crate) use verbs::*;

macro_rules! api {
    ($($library:ident { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions, loaded. The libraries are never unloaded: the providers that they load have state of their own.
        pub(crate) struct Api {
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Api {
            fn load() -> Result<Api, Unavailable> {
                $(let $library = open(concat!("lib", stringify!($library), ".so.1"))?;)*
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

api! {
    ibverbs {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut Device;
        ibv_free_device_list: fn(*mut *mut Device);
        ibv_query_device: fn(*mut Context, *mut DeviceAttributes) -> c_int;
        ibv_query_qp: fn(*mut QueuePair, *mut QpAttributes, c_int, *mut QpInitAttributes) -> c_int;
        ibv_alloc_pd: fn(*mut Context) -> *mut ProtectionDomain;
        ibv_dealloc_pd: fn(*mut ProtectionDomain) -> c_int;
        ibv_reg_mr: fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
        ibv_dereg_mr: fn(*mut MemoryRegion) -> c_int;
        ibv_create_comp_channel: fn(*mut Context) -> *mut CompletionChannel;
        ibv_destroy_comp_channel: fn(*mut CompletionChannel) -> c_int;
        ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueue;
        ibv_destroy_cq: fn(*mut CompletionQueue) -> c_int;
        ibv_get_cq_event: fn(*mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut CompletionQueue, u32);
        ibv_create_srq: fn(*mut ProtectionDomain, *mut SrqInitAttributes) -> *mut SharedReceiveQueue;
        ibv_destroy_srq: fn(*mut SharedReceiveQueue) -> c_int;
        ibv_modify_qp: fn(*mut QueuePair, *mut QpAttributes, c_int) -> c_int;
        ibv_get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
        ibv_ack_async_event: fn(*mut AsyncEvent);
        ibv_wc_status_str: fn(c_int) -> *const c_char;
    }
    rdmacm {
        rdma_create_event_channel: fn() -> *mut EventChannel;
        rdma_destroy_event_channel: fn(*mut EventChannel);
        rdma_create_id: fn(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut CmId) -> c_int;
        rdma_migrate_id: fn(*mut CmId, *mut EventChannel) -> c_int;
        rdma_set_option: fn(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_bind_addr: fn(*mut CmId, *mut libc::sockaddr) -> c_int;
        rdma_listen: fn(*mut CmId, c_int) -> c_int;
        rdma_resolve_addr: fn(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut CmId, c_int) -> c_int;
        rdma_create_qp: fn(*mut CmId, *mut ProtectionDomain, *mut QpInitAttributes) -> c_int;
        rdma_destroy_qp: fn(*mut CmId);
        rdma_connect: fn(*mut CmId, *mut ConnectionParameters) -> c_int;
        rdma_accept: fn(*mut CmId, *mut ConnectionParameters) -> c_int;
        rdma_reject: fn(*mut CmId, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut CmId) -> c_int;
        rdma_get_cm_event: fn(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        rdma_ack_cm_event: fn(*mut CmEvent) -> c_int;
    }
}

fn open(name: &str) -> Result<Library, Unavailable> {
    // SAFETY: the initialisers of both libraries have no preconditions.
    unsafe { Library::new(name) }.map_err(missing)
}

fn missing(source: libloading::Error) -> Unavailable {
    Unavailable::Library { reason: source.to_string() }
}

/// The functions, loaded at the first call that finds the libraries.
pub(crate) fn load() -> Result<&'static Api, Unavailable> {
    static API: OnceLock<Api> = OnceLock::new();
    if let Some(api) = API.get() {
        return Ok(api);
    }
    let loaded = Api::load()?;
    Ok(API.get_or_init(|| loaded))
}

/// Fails to compile where a structure is not laid out as in C. The numbers are those of 64-bit systems.
macro_rules! assert_layout {
    ($type:ty, $size:expr, $($field:ident).+ = $offset:expr $(, $($more:ident).+ = $more_offset:expr)*) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = {
            assert!(size_of::<$type>() == $size);
            assert!(std::mem::offset_of!($type, $($field).+) == $offset);
            $(assert!(std::mem::offset_of!($type, $($more).+) == $more_offset);)*
        };
    };
}
use assert_layout;
