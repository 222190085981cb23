/// Every one of `all` with every one of `values`; unchanged if there are none.
pub fn cross<T: Clone, V: Copy>(
    all: Vec<T>,
    values: &[V],
    set: impl Fn(&mut T, V) + Copy,
) -> Vec<T> {
    if values.is_empty() {
        return all;
    }
    let with_all = |one: T| {
        values.iter().map(move |&value| {
            let mut one = one.clone();
            set(&mut one, value);
            one
        })
    };
    all.into_iter().flat_map(with_all).collect()
}
