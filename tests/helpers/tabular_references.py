"""The tabular algorithm as slow NumPy loops, written from the paper's equations and not from the code."""

import numpy as np

# update -> (V differentiated in v, V differentiated in the model, T differentiated)
FLOWS = {
    "none": (0, 0, 0),
    "dyna": (1, 0, 0),
    "direct": (1, 1, 0),
    "reverse": (0, 0, 1),
    "residual": (1, 1, 1),
    "model_only": (0, 1, 0),
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def induced(r, p, pi):
    """Rewards [S] and transition matrix [S, S] of the model under pi."""
    return (pi * r).sum(1), np.einsum("sa,sat->st", pi, softmax(p))


def explicit_loss(live, stopped, pi, discount, terms, update):
    """The planning loss with stopped copies as separate inputs. live, stopped: (v, r, p)."""
    by_value, by_model, by_target = FLOWS[update]
    v = live[0] if by_value else stopped[0]
    _, chain_v = induced(*(live if by_model else stopped)[1:], pi)
    r_t, chain_t = induced(*(live if by_target else stopped)[1:], pi)
    v_t = live[0] if by_target else stopped[0]
    loss = 0.0
    for k in range(terms):
        visits_v, visits_t = np.linalg.matrix_power(chain_v, k), np.linalg.matrix_power(chain_t, k)
        target = visits_t @ r_t + discount * visits_t @ chain_t @ v_t
        loss += ((target - visits_v @ v) ** 2).sum()
    return loss


def closed_form_gradient(v, r, p, pi, discount, terms, update):
    """Differentiate the planning loss sum by sum. Returns (dv, dr, dp)."""
    by_value, by_model, by_target = FLOWS[update]
    rho, chain = induced(r, p, pi)
    x = [np.linalg.matrix_power(chain, i) @ v for i in range(terms + 1)]
    y = [np.linalg.matrix_power(chain, i) @ rho for i in range(terms)]
    delta = [y[k] + discount * x[k + 1] - x[k] for k in range(terms)]

    def back(j, k):
        return np.linalg.matrix_power(chain.T, j) @ delta[k]

    b = sum(back(k, k) for k in range(terms))
    g = np.zeros_like(chain)
    for k in range(terms):
        for j in range(k):
            g -= by_model * np.outer(back(j, k), x[k - 1 - j])
            g += by_target * np.outer(back(j, k), y[k - 1 - j])
        for j in range(k + 1):
            g += by_target * discount * np.outer(back(j, k), x[k - j])
    probs = softmax(p)
    inner = g[:, None, :] - (probs * g[:, None, :]).sum(-1, keepdims=True)
    dv = -by_value * b + by_target * discount * chain.T @ b
    # the formulas are for half the sum of squares
    return 2 * dv, 2 * by_target * pi * b[:, None], 2 * pi[:, :, None] * probs * inner


def explicit_gradient(v, r, p, pi, discount, terms, update, epsilon=1e-6):
    """Central differences of `explicit_loss` in every entry. Returns (dv, dr, dp)."""
    point, gradients = (v, r, p), []
    for i, table in enumerate(point):
        gradient = np.zeros_like(table)
        for index in np.ndindex(table.shape):
            values = []
            for sign in (1, -1):
                moved = table.copy()
                moved[index] += sign * epsilon
                live = (*point[:i], moved, *point[i + 1 :])
                values.append(explicit_loss(live, point, pi, discount, terms, update))
            gradient[index] = (values[0] - values[1]) / (2 * epsilon)
        gradients.append(gradient)
    return tuple(gradients)


def act(tables, pi, numbers, control):
    if not control:
        return pi
    v, r, p = tables
    q = r + numbers["discount"] * softmax(p) @ v
    policy = np.full(q.shape, numbers["epsilon"] / q.shape[1])
    policy[np.arange(len(q)), q.argmax(1)] += 1 - numbers["epsilon"]
    return policy


def sample(draw, probs, pi):
    """Return [(s, a, s_next)] by inverse distribution functions."""
    batch = []
    for s, u, w in zip(*draw, strict=True):
        a = min(int(np.searchsorted(np.cumsum(pi[s]), u, side="right")), pi.shape[1] - 1)
        cumulative = np.cumsum(probs[s, a])
        s_next = int(np.searchsorted(cumulative, w * cumulative[-1], side="right"))
        batch.append((int(s), a, s_next))
    return batch


def grounded(tables, batch, rewards, numbers):
    """The updates of one batch, transition by transition."""
    v, r, p = (table.copy() for table in tables)
    old_v, old_probs = tables[0], softmax(tables[2])
    for s, a, s_next in batch:
        r[s, a] += numbers["reward"] * (rewards[s, a] - r[s, a])
        v[s] += numbers["td"] * (rewards[s, a] + numbers["discount"] * old_v[s_next] - old_v[s])
        p[s, a] += numbers["mle"] * (np.eye(len(v))[s_next] - old_probs[s, a])
    for s, a, s_next in batch:
        weights = np.eye(rewards.shape[1])[a]
        q = old_probs[s] @ v
        error = weights @ q - v[s_next]
        p[s] -= numbers["ve"] * 2 * error * weights[:, None] * old_probs[s] * (v - q[:, None])
    return v, r, p


def plan(tables, pi, numbers, update, terms):
    """Step down the planning loss."""
    slopes = closed_form_gradient(*tables, pi, numbers["discount"], terms, update)
    rates = (numbers["plan_v"], numbers["plan_r"], numbers["plan_p"])
    return tuple(table - rate * slope for table, rate, slope in zip(tables, rates, slopes, strict=True))
