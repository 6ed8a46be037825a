package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ClusterIDs lists the clusters that can be asked now. Those whose id is not
// known yet are asked for it; the error names the ones that could not be, and two
// that are one cluster: ids expire only after a look at as many as are configured.
func (c *Clusters) ClusterIDs(ctx context.Context) ([]string, error) {
	ids := make([]string, len(c.all))
	errs := make([]error, len(c.all))
	inParallel(len(c.all), func(i int) {
		cl := c.all[i]
		if ids[i] = cl.clusterID(); ids[i] != "" {
			return
		}
		s, err := cl.session(ctx)
		if err != nil {
			errs[i] = fmt.Errorf("cluster %q: %w", cl.cfg.Alias, err)
			return
		}
		ids[i] = s.clusterID
	})
	known := make([]string, 0, len(ids))
	for i, id := range ids {
		switch first := slices.Index(ids, id); {
		case id == "":
		case first < i:
			errs[i] = fmt.Errorf("clusters %q and %q are one cluster, %s, and no id expires while it is configured twice; remove one of them",
				c.all[first].cfg.Alias, c.all[i].cfg.Alias, id)
		default:
			known = append(known, id)
		}
	}
	return known, errors.Join(errs...)
}
