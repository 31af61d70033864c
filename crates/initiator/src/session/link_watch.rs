//! Which links of a connection are lost, and come back: nobody would notice that there is no other one left.

use std::collections::BTreeMap;

/// The links that were live once, by what people call them, and whether they are.
#[derive(Default)]
pub(super) struct LinkWatch(BTreeMap<String, bool>);

/// What is said of links.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum News {
    Lost(String),
    Back(String),
}

impl LinkWatch {
    /// These links are live now; gives what is new. That none is, is another thing: then the server is away.
    pub(super) fn heed(&mut self, live: &[String]) -> Vec<News> {
        if live.is_empty() {
            return Vec::new();
        }
        let all = live.iter().filter(|link| !self.0.contains_key(*link)).count() + self.0.len();
        let left = live.len();
        let mut news = Vec::new();
        for (link, was_live) in &mut self.0 {
            let is_live = live.contains(link);
            match (std::mem::replace(was_live, is_live), is_live) {
                (true, false) => news.push(News::Lost(format!("link {link} lost, {left} of {all} left"))),
                (false, true) => news.push(News::Back(format!("link {link} is back, {left} of {all} live"))),
                _ => {}
            }
        }
        self.0.extend(live.iter().map(|link| (link.clone(), true)));
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_lost_once_and_comes_back_once() {
        let (mut watch, one, two) = (LinkWatch::default(), "eth0 (10.0.0.1)".to_owned(), "eth1 (10.0.1.1)".to_owned());
        let both = [one.clone(), two.clone()];
        assert_eq!(watch.heed(&both), []);
        let lost = || vec![News::Lost("link eth1 (10.0.1.1) lost, 1 of 2 left".into())];
        assert_eq!((watch.heed(&both[..1]), watch.heed(&both[..1])), (lost(), vec![]));
        assert_eq!(watch.heed(&[]), [], "the server is away");
        assert_eq!(watch.heed(&both), [News::Back("link eth1 (10.0.1.1) is back, 2 of 2 live".into())]);
        assert_eq!(watch.heed(&both), []);
    }

    #[test]
    fn a_link_is_lost_also_when_another_one_comes_at_the_same_time() {
        let (mut watch, one, two) = (LinkWatch::default(), "a (x)".to_owned(), "b (y)".to_owned());
        watch.heed(&[one]);
        assert_eq!(watch.heed(&[two]), [News::Lost("link a (x) lost, 1 of 2 left".into())]);
    }
}
