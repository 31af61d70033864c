//! Many who want to listen to events at a time: some may, and nobody else is kept waiting.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request as HttpRequest, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::FakeDesk;
use crate::accounts::Accounts;
use crate::app::{self, App};
use crate::caller::Peer;
use crate::limits::LISTENERS_MAX;

const WANTED: usize = 1000;

fn request(path: &str) -> HttpRequest<Body> {
    let mut request = HttpRequest::get(path).body(Body::empty()).unwrap();
    // It may have them all.
    request.extensions_mut().insert(Peer::Unix { uid: 0, pid: 1 });
    request
}

#[test]
fn of_a_thousand_listeners_as_many_are_told_as_there_are_places() {
    let desk = Arc::new(FakeDesk::new(super::requests::answer));
    let app = App::new(desk, Vec::new(), Arc::new(Accounts::load(None).unwrap())).unwrap();
    let router = app::router(Arc::clone(&app));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut streams, mut refused) = (Vec::new(), 0);
        for _ in 0..WANTED {
            let response = router.clone().oneshot(request("/api/v1/events")).await.unwrap();
            match response.status() {
                StatusCode::OK => streams.push(response.into_body()),
                StatusCode::SERVICE_UNAVAILABLE => {
                    let text = response.into_body().collect().await.unwrap().to_bytes();
                    assert!(String::from_utf8_lossy(&text).contains("listeners-too-many"), "{text:?}");
                    refused += 1;
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(
            (streams.len(), refused, app.news.listeners()),
            (LISTENERS_MAX, WANTED - LISTENERS_MAX, LISTENERS_MAX)
        );
        for stream in &mut streams {
            let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(&first[..], b": events\n\n");
        }
        // They wait for news, which takes no place from others.
        for path in ["/healthz", "/api/v1/server", "/api/v1/volumes"] {
            assert_eq!(router.clone().oneshot(request(path)).await.unwrap().status(), StatusCode::OK, "{path}");
        }
        drop(streams);
        assert_eq!(app.news.listeners(), 0);
        assert_eq!(router.clone().oneshot(request("/api/v1/events")).await.unwrap().status(), StatusCode::OK);
    });
}
