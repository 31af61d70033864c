//! A server with many volumes: what is told of them is made beside the thread of HTTP, so that nobody waits for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request as HttpRequest;
use http_body_util::BodyExt;
use rustix::time::{ClockId, clock_gettime};
use sanwire_server::{Answer, Asker, Request, Response, Statistics, Status, TargetStatus, VolumeStatistics};
use tower::ServiceExt;

use crate::Desk;
use crate::accounts::Accounts;
use crate::app::{self, App};
use crate::caller::Peer;

const VOLUMES: u16 = 10_000;

/// A desk with so many of everything.
struct LargeDesk(Answer, Answer);

impl Desk for LargeDesk {
    fn handle(&self, _: &Asker, request: Request) -> Response {
        Response::Done(match request {
            Request::Status => self.0.clone(),
            Request::Statistics => self.1.clone(),
            other => panic!("{other:?}"),
        })
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn note_changed(&self, _: &Asker, _: String) {}

    fn note_refused(&self, _: &Asker, _: &str) {}
}

fn large() -> LargeDesk {
    let numbers = || 0..VOLUMES;
    let volumes = numbers().map(super::requests::volume).collect();
    let targets = numbers().map(|number| {
        let name = format!("iqn.2026-11.x:v{number}");
        TargetStatus { revision: 1, name, terms: Default::default(), units: Vec::new(), groups: Vec::new() }
    });
    let Answer::Status(status) = super::requests::status() else { panic!("it is none") };
    let status = Status { volumes, targets: targets.collect(), ..status };
    let counted = numbers().map(|number| {
        let name = format!("v{number}");
        let (read_bytes, written_bytes, store_errors) = (1 << 40, 1 << 40, BTreeMap::new());
        VolumeStatistics {
            name,
            read_bytes,
            written_bytes,
            store_errors,
            commands: 9_999_999,
            errors: 0,
            remote: None,
            latency_mean_us: 100,
            latency_median_us: 100,
            latency_p99_us: 1000,
            latency_max_us: 10_000,
        }
    });
    let statistics = Statistics {
        volumes: counted.collect(),
        connections: Vec::new(),
        dropped: BTreeMap::new(),
        quotas: Vec::new(),
    };
    LargeDesk(Answer::Status(status), Answer::Statistics(statistics))
}

/// The time for which this thread has computed.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

async fn get(router: &Router, path: &str) -> usize {
    let mut request = HttpRequest::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Peer::Unix { uid: 0, pid: 1 });
    let response = router.clone().oneshot(request).await.unwrap();
    assert!(response.status().is_success(), "{path}: {}", response.status());
    response.into_body().collect().await.unwrap().to_bytes().len()
}

#[test]
fn what_is_told_of_many_volumes_is_not_made_in_the_thread_of_http() {
    let desk = large();
    let begun = computed();
    let whole = serde_json::to_vec(&desk.handle(&Asker::Signal { signal: "test" }, Request::Statistics)).unwrap().len();
    let made = computed() - begun;
    let app = App::new(Arc::new(desk), Vec::new(), Arc::new(Accounts::load(None).unwrap())).unwrap();
    let router = app::router(app);
    // As in the server, where HTTP has one thread: this one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (path, least) in [
            ("/api/v1/statistics", whole / 2),
            ("/api/v1/volumes?limit=1000", 100_000),
            ("/api/v1/volumes/v9999", 100),
            ("/api/v1/targets?limit=1000", 50_000),
            ("/api/v1/targets/iqn.2026-11.x:v9999", 50),
            ("/api/v1/server", 100),
        ] {
            let begun = computed();
            assert!(get(&router, path).await > least, "{path}");
            let own = computed() - begun;
            assert!(own < made / 4, "{path}: {own:?} of {made:?} that it takes to make {whole} bytes");
        }
    });
}
