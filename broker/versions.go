package broker

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// routeAPIVersions lets kfake answer, which knows the features too, and puts
// in what this node serves.
func (f *Front) routeAPIVersions(body *kmsg.ApiVersionsRequest) plan {
	if f.opts.Embedded == nil {
		resp := body.ResponseKind().(*kmsg.ApiVersionsResponse)
		f.listAPIs(resp)
		return answerWith(resp)
	}
	return plan{edit: editAs(func(resp *kmsg.ApiVersionsResponse) kmsg.Response {
		if resp.ErrorCode == 0 {
			f.listAPIs(resp)
		}
		return resp
	})}
}

// early makes a plan for a client that has no name yet, and so no connection
// to kfake: the node itself asks.
func (f *Front) early(req kmsg.Request, p plan) plan {
	if p.handle != nil {
		return p
	}
	return plan{handle: func(ctx context.Context, _ caller) kmsg.Response {
		resp, err := f.opts.Embedded.ask(ctx, req)
		if err != nil {
			return nil
		}
		return p.edit(resp)
	}}
}

func (f *Front) listAPIs(resp *kmsg.ApiVersionsResponse) {
	resp.ApiKeys = resp.ApiKeys[:0]
	for _, key := range slices.Sorted(maps.Keys(f.apis)) {
		resp.ApiKeys = append(resp.ApiKeys, f.listedAPI(key))
	}
}

func (f *Front) listedAPI(key int16) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = key, f.apis[key].min, f.apis[key].max
	return k
}

// unsupportedAPIVersions is KIP-511's answer to a client that is newer: in
// version 0, which every client reads, with nothing but the versions to ask in.
func (f *Front) unsupportedAPIVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version, resp.ErrorCode = 0, kerr.UnsupportedVersion.Code
	resp.ApiKeys = append(resp.ApiKeys, f.listedAPI(apiVersionsKey))
	return resp
}

// metadata is that of a node without the broker role: coordinators, and no
// topics.
func (f *Front) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	nodes := []Node{f.opts.Node}
	if lister, ok := f.opts.Coordinator.(NodeLister); ok {
		nodes = lister.Nodes()
	}
	for _, n := range nodes {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = n.ID, n.Host, n.Port
		resp.Brokers = append(resp.Brokers, b)
	}
	resp.ControllerID = f.opts.Node.ID
	for _, t := range req.Topics {
		r := kmsg.NewMetadataResponseTopic()
		r.Topic, r.TopicID, r.ErrorCode = t.Topic, t.TopicID, kerr.UnknownTopicOrPartition.Code
		if t.Topic == nil && req.Version < 10 {
			r.Topic = kmsg.StringPtr("")
		}
		resp.Topics = append(resp.Topics, r)
	}
	return resp
}
