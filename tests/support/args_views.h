// VisitViews(args, visit): calls visit(TensorView&) for every tensor that an operation's arguments name,
// empty ones too. Packed matrices are not among them: they lie on their device already.
#pragma once

#include "runtime/ops/attention/attention.h"
#include "runtime/ops/discretize/discretize.h"
#include "runtime/ops/embedding/embedding.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/rms_norm/rms_norm.h"
#include "runtime/ops/rope/rope.h"
#include "runtime/ops/sample/sample.h"
#include "runtime/ops/selective_scan/selective_scan.h"
#include "runtime/ops/short_conv/short_conv.h"
#include "runtime/ops/skip/skip.h"
#include "runtime/ops/swiglu/swiglu.h"

namespace weir {

template <class Visit, class... Views>
void VisitEach(Visit& visit, Views&... views) {
  (visit(views), ...);
}
template <class Visit>
void VisitBatch(RaggedBatch& batch, Visit& visit) {
  VisitEach(visit, batch.cu_seqlens, batch.slots, batch.positions, batch.block_tables);
}

template <class Visit>
void VisitViews(AttentionArgs& args, Visit&& visit) {
  VisitBatch(args.batch, visit);
  VisitEach(visit, args.q, args.kv.keys, args.kv.values, args.o, args.scratch);
}
template <class Visit>
void VisitViews(KvWriteArgs& args, Visit&& visit) {
  VisitBatch(args.batch, visit);
  VisitEach(visit, args.k, args.v, args.kv.keys, args.kv.values);
}
template <class Visit>
void VisitViews(DiscretizeArgs& args, Visit&& visit) {
  VisitEach(visit, args.dt, args.bias, args.a, args.x, args.log_decay, args.v);
}
template <class Visit>
void VisitViews(GatherRowsArgs& args, Visit&& visit) {
  VisitEach(visit, args.table, args.index, args.y);
}
template <class Visit>
void VisitViews(GatherPackedRowsArgs& args, Visit&& visit) {
  VisitEach(visit, args.index, args.y);
}
template <class Visit>
void VisitViews(EluPlusOneArgs& args, Visit&& visit) {
  VisitEach(visit, args.x, args.y);
}
template <class Visit>
void VisitViews(FavorArgs& args, Visit&& visit) {
  VisitBatch(args.batch, visit);
  VisitEach(visit, args.x, args.features, args.y, args.maximum, args.log_decay);
}
template <class Visit>
void VisitViews(LinearRecurrenceArgs& args, Visit&& visit) {
  VisitBatch(args.batch, visit);
  VisitEach(visit, args.q, args.k, args.v, args.log_decay, args.s_outer, args.s_inner, args.z_outer,
            args.z_inner, args.o);
}
template <class Visit>
void VisitViews(MatmulArgs& args, Visit&& visit) {
  VisitEach(visit, args.x, args.y, args.bias);
}
template <class Visit>
void VisitViews(RmsNormArgs& args, Visit&& visit) {
  VisitEach(visit, args.x, args.weight, args.gate, args.y);
}
template <class Visit>
void VisitViews(RopeArgs& args, Visit&& visit) {
  VisitBatch(args.batch, visit);
  VisitEach(visit, args.x, args.inv_freq);
}
template <class Visit>
void VisitViews(SampleRowsArgs& args, Visit&& visit) {
  VisitEach(visit, args.logits, args.params, args.samples);
}
template <class Visit>
void VisitViews(SelectiveScanArgs& args, Visit&& visit) {
  VisitBatch(args.batch, visit);
  VisitEach(visit, args.u, args.dt, args.dt_bias, args.a, args.b, args.c, args.d, args.z, args.state, args.y);
}
template <class Visit>
void VisitViews(ShortConvArgs& args, Visit&& visit) {
  VisitBatch(args.batch, visit);
  VisitEach(visit, args.x, args.weight, args.bias, args.window, args.y);
}
template <class Visit>
void VisitViews(SkipArgs& args, Visit&& visit) {
  VisitEach(visit, args.x, args.d, args.y);
}
template <class Visit>
void VisitViews(SwiGluArgs& args, Visit&& visit) {
  VisitEach(visit, args.gate, args.up, args.y);
}

}  // namespace weir
