package broker

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	maxTimeoutName = "transaction.max.timeout.ms"
	twoPhaseName   = "transaction.two.phase.commit.enable"
)

// staticConfigs are the settings of the broker that kfake does not have or,
// for version 6 of InitProducerId, has with another value. Whether a cluster
// takes part in global transactions is read from them.
func (f *Front) staticConfigs(version int16) []kmsg.DescribeConfigsResponseResourceConfig {
	cfg := f.opts.Config
	config := func(name, value, def string, t kmsg.ConfigType) kmsg.DescribeConfigsResponseResourceConfig {
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value, c.ReadOnly = name, &value, true
		c.Source = kmsg.ConfigSourceStaticBrokerConfig
		if value == def {
			c.Source = kmsg.ConfigSourceDefaultConfig
		}
		c.IsDefault = c.Source == kmsg.ConfigSourceDefaultConfig
		if version >= 3 {
			c.ConfigType = t
		}
		return c
	}
	return []kmsg.DescribeConfigsResponseResourceConfig{
		config(maxTimeoutName, strconv.Itoa(int(cfg.TransactionMaxTimeoutMillis)), "900000", kmsg.ConfigTypeInt),
		config(twoPhaseName, strconv.FormatBool(cfg.TwoPhaseCommit), "false", kmsg.ConfigTypeBoolean),
	}
}

// static says that a setting is the front's and cannot be changed while the
// node runs, as in Kafka.
func static(name string) bool { return name == maxTimeoutName || name == twoPhaseName }

// showConfigs puts the front's settings into the description of this broker.
func (f *Front) showConfigs(req *kmsg.DescribeConfigsRequest) func(*kmsg.DescribeConfigsResponse) kmsg.Response {
	return func(resp *kmsg.DescribeConfigsResponse) kmsg.Response {
		for i := range resp.Resources {
			r := &resp.Resources[i]
			if r.ResourceType != kmsg.ConfigResourceTypeBroker || r.ErrorCode != 0 {
				continue
			}
			r.Configs = slices.DeleteFunc(r.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return static(c.Name) })
			if r.ResourceName == "" {
				continue // the cluster's defaults hold dynamic settings only
			}
			for _, c := range f.staticConfigs(resp.Version) {
				if asked(req, r.ResourceName, c.Name) {
					r.Configs = append(r.Configs, c)
				}
			}
		}
		return resp
	}
}

// asked says that a request for a broker wants to see one setting.
func asked(req *kmsg.DescribeConfigsRequest, broker, name string) bool {
	for _, r := range req.Resources {
		if r.ResourceType == kmsg.ConfigResourceTypeBroker && r.ResourceName == broker &&
			(len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, name)) {
			return true
		}
	}
	return false
}

var staticMessage = "Cannot update these configs dynamically: " + maxTimeoutName + ", " + twoPhaseName

// routeIncrementalAlterConfigs refuses to change the front's settings in
// kfake, where the change would have no effect or the wrong one.
func (f *Front) routeIncrementalAlterConfigs(req *request, body *kmsg.IncrementalAlterConfigsRequest) plan {
	var refused []kmsg.IncrementalAlterConfigsResponseResource
	body.Resources = slices.DeleteFunc(body.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) bool {
		if r.ResourceType != kmsg.ConfigResourceTypeBroker ||
			!slices.ContainsFunc(r.Configs, func(c kmsg.IncrementalAlterConfigsRequestResourceConfig) bool { return static(c.Name) }) {
			return false
		}
		e := kmsg.NewIncrementalAlterConfigsResponseResource()
		e.ResourceType, e.ResourceName = r.ResourceType, r.ResourceName
		e.ErrorCode, e.ErrorMessage = kerr.InvalidRequest.Code, &staticMessage
		refused = append(refused, e)
		return true
	})
	if refused == nil {
		return plan{}
	}
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.IncrementalAlterConfigsResponse) kmsg.Response {
			resp.Resources = append(resp.Resources, refused...)
			return resp
		}),
	}
}

// routeAlterConfigs does the same for the older request, which replaces all
// settings of a broker: the one that kfake needs for itself is put in again.
func (f *Front) routeAlterConfigs(req *request, body *kmsg.AlterConfigsRequest) plan {
	var refused []kmsg.AlterConfigsResponseResource
	body.Resources = slices.DeleteFunc(body.Resources, func(r kmsg.AlterConfigsRequestResource) bool {
		if r.ResourceType != kmsg.ConfigResourceTypeBroker ||
			!slices.ContainsFunc(r.Configs, func(c kmsg.AlterConfigsRequestResourceConfig) bool { return static(c.Name) }) {
			return false
		}
		e := kmsg.NewAlterConfigsResponseResource()
		e.ResourceType, e.ResourceName = r.ResourceType, r.ResourceName
		e.ErrorCode, e.ErrorMessage = kerr.InvalidRequest.Code, &staticMessage
		refused = append(refused, e)
		return true
	})
	for i := range body.Resources {
		if r := &body.Resources[i]; r.ResourceType == kmsg.ConfigResourceTypeBroker {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			value := kfakeMaxTimeout(f.opts.Config)
			c.Name, c.Value = maxTimeoutName, &value
			r.Configs = append(r.Configs, c)
		}
	}
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.AlterConfigsResponse) kmsg.Response {
			resp.Resources = append(resp.Resources, refused...)
			return resp
		}),
	}
}
