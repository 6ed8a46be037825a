package participant

import (
	"context"
	"errors"
	"fmt"
)

// ClusterIDs lists the clusters that can be asked now. Those whose id is not
// known yet are asked for it; the error names the ones that could not be.
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
	known := ids[:0]
	for _, id := range ids {
		if id != "" {
			known = append(known, id)
		}
	}
	return known, errors.Join(errs...)
}
