//! A sorted map that is replaced when it changes, and shares with the one before all but what has changed.

use std::sync::Arc;

/// Entries of a page, at the most: a change copies that many, and the list of pages.
const PAGE_MAX: usize = 128;

/// Its copies cost no more than its list of pages; who reads one meets no change.
#[derive(Clone, Debug)]
pub(crate) struct PagedMap<K, V> {
    /// None is empty. Ascending, as are the keys in each.
    pages: Vec<Arc<Vec<(K, V)>>>,
}

impl<K, V> Default for PagedMap<K, V> {
    fn default() -> Self {
        PagedMap { pages: Vec::new() }
    }
}

impl<K: Ord + Clone, V: Clone> PagedMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let page = self.pages.get(self.page_of(key))?;
        let at = page.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        page.get(at).map(|(_, value)| seen(value))
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let at = self.page_of(&key);
        let Some(page) = self.pages.get_mut(at) else { return self.pages.push(Arc::new(vec![(key, value)])) };
        let page = own(page);
        match page.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(there) => page[there] = (key, value),
            Err(place) => page.insert(place, (key, value)),
        }
        if page.len() > PAGE_MAX {
            let upper = page.split_off(PAGE_MAX / 2);
            self.pages.insert(at + 1, Arc::new(upper));
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.page_of(key);
        let page = self.pages.get_mut(at)?;
        let there = page.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        let (_, value) = own(page).remove(there);
        if page.is_empty() {
            self.pages.remove(at);
        }
        Some(value)
    }

    /// All entries, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pages.iter().flat_map(|page| page.iter()).map(|(key, value)| (key, seen(value)))
    }

    /// The entries from this key on, ascending.
    pub(crate) fn from<'a>(&'a self, key: &K) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let at = self.page_of(key);
        let first = self.pages.get(at).map_or(0, |page| page.partition_point(|(other, _)| other < key));
        let rest = self.pages.iter().skip(at).flat_map(|page| page.iter()).skip(first);
        rest.map(|(key, value)| (key, seen(value)))
    }

    /// Where a key is if it is there: in the last page that begins at it or before it.
    fn page_of(&self, key: &K) -> usize {
        let begins_before = |page: &Arc<Vec<(K, V)>>| page.first().is_some_and(|(first, _)| first <= key);
        self.pages.partition_point(begins_before).saturating_sub(1)
    }
}

/// A page that is nobody else's.
fn own<T: Clone>(page: &mut Arc<Vec<T>>) -> &mut Vec<T> {
    #[cfg(test)]
    crate::visits::count(if Arc::strong_count(page) > 1 { page.len() } else { 0 });
    Arc::make_mut(page)
}

fn seen<T>(entry: T) -> T {
    #[cfg(test)]
    crate::visits::count(1);
    entry
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn entries(map: &PagedMap<u32, u32>) -> Vec<(u32, u32)> {
        map.iter().map(|(key, value)| (*key, *value)).collect()
    }

    #[test]
    fn it_is_what_a_map_is_that_is_copied_whole() {
        let (mut map, mut model) = (PagedMap::default(), BTreeMap::new());
        let mut number = 1u32;
        for round in 0..4000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (number >> 16) % 1500;
            let (before, whole) = (map.clone(), entries(&map));
            if number >> 8 & 3 == 0 {
                assert_eq!(map.remove(&key), model.remove(&key));
            } else {
                map.insert(key, round);
                model.insert(key, round);
            }
            assert_eq!((map.get(&key), entries(&before)), (model.get(&key), whole));
            let following =
                |key: &u32| model.range(key..).map(|(key, value)| (*key, *value)).take(3).collect::<Vec<_>>();
            assert_eq!(map.from(&key).map(|(key, value)| (*key, *value)).take(3).collect::<Vec<_>>(), following(&key));
        }
        assert_eq!(entries(&map), model.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>());
        (0..1500).for_each(|key| _ = map.remove(&key));
        assert!(map.pages.is_empty() && map.get(&0).is_none() && map.remove(&0).is_none());
    }

    #[test]
    fn a_change_among_ten_thousand_copies_a_page() {
        let mut map = PagedMap::default();
        (0..10_000u32).for_each(|key| map.insert(key, key));
        let before = map.clone();
        let visits = crate::visits::during(|| {
            map.insert(7000, 1);
            map.remove(&7001);
        });
        assert!(visits <= PAGE_MAX, "{visits}");
        assert_eq!((before.get(&7000), before.get(&7001)), (Some(&7000), Some(&7001)));
    }
}
