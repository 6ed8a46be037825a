package participant

import (
	"context"
	"fmt"
	"slices"
)

// Aliases are the names of the configured clusters, in the order of configuration.
func (c *Clusters) Aliases() []string {
	aliases := make([]string, len(c.all))
	for i, cl := range c.all {
		aliases[i] = cl.cfg.Alias
	}
	return aliases
}

// Learn tells the id of a configured cluster, asking it when it is not known yet.
// An error says why it is not known, or that an earlier cluster of the
// configuration is the same one: ids expire only after a look at as many as are
// configured.
func (c *Clusters) Learn(ctx context.Context, alias string) (string, error) {
	i := slices.Index(c.Aliases(), alias)
	if i < 0 {
		return "", fmt.Errorf("no cluster %q is configured (gtc.clusters)", alias)
	}
	id := c.all[i].clusterID()
	if id == "" {
		s, err := c.all[i].session(ctx)
		if err != nil {
			return "", fmt.Errorf("cluster %q: %w", alias, err)
		}
		id = s.clusterID
	}
	for _, other := range c.all[:i] {
		if other.clusterID() == id {
			return "", fmt.Errorf("clusters %q and %q are one cluster, %s, and no id expires while it is configured twice; remove one of them",
				other.cfg.Alias, alias, id)
		}
	}
	return id, nil
}
